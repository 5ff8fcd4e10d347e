"""What is known of APIs: operations and documentation snippets, read and ranked."""
