/** Name and logo of the installation: the REST gateway writes them into index.html (`BOS_REST_BRAND_…`). */
export const brand = {
  name: document.querySelector<HTMLMetaElement>("meta[name=application-name]")?.content ?? "",
  logo: document.querySelector("link[rel=icon]")?.getAttribute("href") ?? "",
};
