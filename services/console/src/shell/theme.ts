/** The theme: as the system says, or one that was chosen; kept in this browser. */

export const THEMES = ["system", "light", "dark", "bank"] as const;
export type Theme = (typeof THEMES)[number];

const KEY = "bos-theme";
const dark = matchMedia("(prefers-color-scheme: dark)");

export function storedTheme(): Theme {
  try {
    const found = localStorage.getItem(KEY) as Theme | null;
    return found !== null && THEMES.includes(found) ? found : "system";
  } catch {
    return "system"; // storage is switched off
  }
}

export function chooseTheme(theme: Theme): void {
  try {
    localStorage.setItem(KEY, theme);
  } catch {
    // It holds until the page is closed.
  }
  applyTheme(theme);
}

function applyTheme(theme: Theme): void {
  const shown = theme === "system" ? (dark.matches ? "dark" : "light") : theme;
  document.documentElement.dataset["theme"] = shown;
}

/** Applies the theme, and again whenever the system changes its own. */
export function startTheme(): void {
  applyTheme(storedTheme());
  dark.addEventListener("change", () => applyTheme(storedTheme()));
}
