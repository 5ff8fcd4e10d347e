/** The theme: as the system says, or one that was chosen. Its tokens are in `styles/themes`. */
import { preferences } from "../settings/preferences";

const dark = matchMedia("(prefers-color-scheme: dark)");

function applyTheme(): void {
  const { theme } = preferences.read();
  const shown = theme === "system" ? (dark.matches ? "dark" : "light") : theme;
  document.documentElement.dataset["theme"] = shown;
}

/** Applies the theme, and again whenever it or the system's changes. */
export function startTheme(): void {
  applyTheme();
  preferences.subscribe(applyTheme);
  dark.addEventListener("change", applyTheme);
}
