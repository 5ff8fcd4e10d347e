import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";

// `make console-dev`: the page comes from Vite, everything else from REST, which accepts only its own origin.
const rest = process.env["BOS_CONSOLE_DEV_REST"] ?? "http://127.0.0.1:8000";
const proxied = {
  target: rest,
  changeOrigin: true,
  headers: { origin: new URL(rest).origin },
};

export default defineConfig({
  plugins: [react()],
  worker: { format: "es" },
  build: {
    target: "es2023",
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    chunkSizeWarningLimit: 900, // scripts/first-load.js holds the limit that counts
  },
  server: {
    host: "127.0.0.1",
    proxy: { "/v1": proxied, "/openapi.json": proxied, "/docs": proxied },
  },
  test: { include: ["tests/**/*.test.{ts,tsx}"], environment: "node", testTimeout: 60_000 },
});
