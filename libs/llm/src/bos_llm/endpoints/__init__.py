"""Model endpoints: keys, providers, requests, retries, circuit breaker."""
