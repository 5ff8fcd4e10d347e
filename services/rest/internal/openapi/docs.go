package openapi

import (
	"compress/gzip"
	"io"
	"net/http"
	"strings"

	"github.com/swaggest/swgui/v5/static"
)

// DocsPaths are the paths of the interactive pages, all GET.
var DocsPaths = []string{"/docs", "/docs/page.js", "/docs/page.css", "/docs/swagger-ui-bundle.js",
	"/docs/swagger-ui.css"}

// Content security policy of the pages, which load nothing from other hosts. The user interface sets
// inline styles, hence unsafe-inline; its icons are data URLs.
const docsPolicy = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; " +
	"img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; " +
	"frame-ancestors 'none'"

const docsPage = `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Bos: REST</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/docs/swagger-ui.css">
<link rel="stylesheet" href="/docs/page.css">
</head>
<body>
<div id="operations"></div>
<script src="/docs/swagger-ui-bundle.js"></script>
<script src="/docs/page.js"></script>
</body>
</html>
`

const docsScript = `"use strict";
SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#operations",
  presets: [SwaggerUIBundle.presets.apis],
  deepLinking: true,
  validatorUrl: null,
  persistAuthorization: false,
});
`

const docsStyle = "body { margin: 0; }\n"

// Docs answers for DocsPaths.
func Docs(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Security-Policy", docsPolicy)
	switch name := strings.TrimPrefix(r.URL.Path, "/docs"); name {
	case "":
		text(w, "text/html; charset=utf-8", docsPage)
	case "/page.js":
		text(w, "text/javascript; charset=utf-8", docsScript)
	case "/page.css":
		text(w, "text/css; charset=utf-8", docsStyle)
	case "/swagger-ui-bundle.js":
		packed(w, r, "text/javascript; charset=utf-8", "swagger-ui-bundle.js.gz")
	case "/swagger-ui.css":
		packed(w, r, "text/css; charset=utf-8", "swagger-ui.css.gz")
	default:
		http.NotFound(w, r)
	}
}

func text(w http.ResponseWriter, contentType, content string) {
	w.Header().Set("Content-Type", contentType)
	_, _ = io.WriteString(w, content)
}

func packed(w http.ResponseWriter, r *http.Request, contentType, name string) {
	file, err := static.FS.Open(name)
	if err != nil {
		http.NotFound(w, r)
		return
	}
	defer file.Close()
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Cache-Control", "max-age=3600")
	w.Header().Set("Vary", "Accept-Encoding")
	var content io.Reader = file
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.Header().Set("Content-Encoding", "gzip")
	} else if content, err = gzip.NewReader(file); err != nil {
		http.Error(w, "", http.StatusInternalServerError)
		return
	}
	_, _ = io.Copy(w, content)
}
