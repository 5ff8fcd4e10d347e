import js from "@eslint/js";
import hooks from "eslint-plugin-react-hooks";
import { defineConfig } from "eslint/config";
import ts from "typescript-eslint";

export default defineConfig(
  { ignores: ["dist", "src/api/schema.d.ts", "test-results"] },
  js.configs.recommended,
  ts.configs.strict,
  hooks.configs.flat.recommended,
  {
    files: ["scripts/**/*.js"],
    languageOptions: { globals: { URL: "readonly", console: "readonly", process: "readonly" } },
  },
  {
    rules: {
      // Text of models, users and databases is never HTML.
      "no-restricted-syntax": [
        "error",
        { selector: "JSXAttribute[name.name='dangerouslySetInnerHTML']", message: "Never render HTML." },
        { selector: "MemberExpression[property.name='innerHTML']", message: "Never render HTML." },
      ],
    },
  },
);
