import { CSPProvider } from "@base-ui/react/csp-provider";
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";

import { isTransient } from "./api/errors";
import { Language } from "./messages/Language";
import { router } from "./router";
import { startTheme } from "./shell/theme";
import "./text/trusted";
import "./styles/tokens.css";
import "./styles/themes/light.css";
import "./styles/themes/dark.css";
import "./styles/themes/bank.css";
import "./styles/base.css";

const client = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 10_000,
      retry: (failures, error) => failures < 3 && isTransient(error),
    },
  },
});

startTheme();
const element = document.getElementById("root");
if (!element) throw new Error("index.html has no #root");
createRoot(element).render(
  <StrictMode>
    <CSPProvider disableStyleElements>
      <Language>
        <QueryClientProvider client={client}>
          <RouterProvider router={router} />
        </QueryClientProvider>
      </Language>
    </CSPProvider>
  </StrictMode>,
);
