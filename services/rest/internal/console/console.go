// Package console serves the web console, a build that is embedded in this program: no file of the
// machine and no other host is needed.
package console

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"

	"bos/rest/internal/openapi"
)

//go:embed all:assets
var built embed.FS

//go:embed fallback
var fallback embed.FS

const (
	indexPath = "/index.html"
	// Names of files in this folder hold a digest of their content.
	hashedFolder = "/assets/"
	// NoncePlaceholder stands in index.html where a script reads the nonce of its styles.
	NoncePlaceholder = "__BOS_NONCE__"
	nonceBytes       = 16
	digestShown      = 16
	immutable        = "public, max-age=31536000, immutable"
	// The one policy of Trusted Types: services/console/src/text/trusted.ts makes it.
	policyName = "bos"
)

// Template is the route of the console in metrics and traces.
const Template = "/{console}"

// Beginnings of paths that belong to the API, whose unknown paths stay errors in JSON.
var apiPaths = []string{
	"/v1/", "/api/", "/query", "/hitl/", "/upload", "/docs", "/mcp", "/a2a", "/.well-known/",
	"/healthz", "/readyz", "/metrics", "/openapi.json", hashedFolder,
}

// encodings of responses, the preferred one first, with the ending of embedded files.
var encodings = []struct{ name, ending string }{{"br", ".br"}, {"gzip", ".gz"}}

// variant is a file in one encoding.
type variant struct {
	encoding string // empty: as it is
	content  []byte
	tag      string
}

type file struct {
	contentType, cache string
	variants           []variant // in the order of encodings, the plain one last
}

// Console serves the files of one build.
type Console struct {
	files map[string]file
	// Parts of index.html around the nonce; nil if the build asks for none.
	around [][]byte
}

// Open returns the console that is embedded, or a page that says how to build it.
func Open(brand Brand) (*Console, error) {
	files, err := fs.Sub(built, "assets")
	if err != nil {
		return nil, err
	}
	if _, err := fs.Stat(files, "index.html"); err != nil {
		if files, err = fs.Sub(fallback, "fallback"); err != nil {
			return nil, err
		}
	}
	return New(files, brand)
}

// New returns the console of a build: index.html, and files beside it with their compressed forms.
func New(files fs.FS, brand Brand) (*Console, error) {
	console := &Console{files: map[string]file{}}
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || strings.HasPrefix(path.Base(name), ".") || isCompressed(name) {
			return err
		}
		made, err := load(files, name)
		console.files["/"+name] = made
		return err
	})
	if err != nil {
		return nil, err
	}
	if _, given := console.files[indexPath]; !given {
		return nil, fmt.Errorf("the console's build holds no index.html")
	}
	if brand.Name != "" || brand.Logo != nil {
		console.apply(brand)
	}
	index := console.files[indexPath]
	plain := index.variants[len(index.variants)-1].content
	if parts := bytes.Split(plain, []byte(NoncePlaceholder)); len(parts) > 1 {
		console.around = parts
	}
	return console, nil
}

func isCompressed(name string) bool {
	return slices.ContainsFunc(encodings, func(one struct{ name, ending string }) bool {
		return strings.HasSuffix(name, one.ending)
	})
}

func load(files fs.FS, name string) (file, error) {
	made := file{contentType: typeOf(name), cache: "no-cache"}
	if strings.HasPrefix("/"+name, hashedFolder) {
		made.cache = immutable
	}
	for _, one := range encodings {
		if content, err := fs.ReadFile(files, name+one.ending); err == nil {
			made.variants = append(made.variants, variantOf(one.name, content))
		}
	}
	content, err := fs.ReadFile(files, name)
	made.variants = append(made.variants, variantOf("", content))
	return made, err
}

func variantOf(encoding string, content []byte) variant {
	digest := sha256.Sum256(content)
	return variant{encoding, content, `"` + base64.RawURLEncoding.EncodeToString(digest[:digestShown]) + `"`}
}

// types that the machine's own table may lack or name otherwise.
var types = map[string]string{
	".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8",
	".css": "text/css; charset=utf-8", ".svg": "image/svg+xml", ".json": "application/json",
	".woff2": "font/woff2", ".png": "image/png", ".ico": "image/x-icon", ".wasm": "application/wasm",
	".webmanifest": "application/manifest+json", ".txt": "text/plain; charset=utf-8",
}

func typeOf(name string) string {
	if known, given := types[path.Ext(name)]; given {
		return known
	}
	if known := mime.TypeByExtension(path.Ext(name)); known != "" {
		return known
	}
	return "application/octet-stream"
}

// Route returns the route of a request for the console: one of its files, or a page of it, which is
// any path outside the API that a browser opens. nil for all other requests. A page has any
// query parameters it likes.
func (c *Console) Route(r *http.Request) *openapi.Route {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return nil
	}
	if _, given := c.files[r.URL.Path]; !given && !isPage(r) {
		return nil
	}
	return openapi.PageRoute(Template)
}

// isPage reports whether a browser opens a page; a call of a script names other types than HTML.
func isPage(r *http.Request) bool {
	for _, beginning := range apiPaths {
		if strings.HasPrefix(r.URL.Path, beginning) {
			return false
		}
	}
	return r.URL.Path == "/" || strings.Contains(r.Header.Get("Accept"), "text/html")
}

// ServeHTTP answers requests that have a Route.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	found, given := c.files[r.URL.Path]
	header := w.Header()
	if !given || r.URL.Path == indexPath {
		found = c.files[indexPath]
		pageHeaders(header, "")
		if c.around != nil {
			c.serveWithNonce(w)
			return
		}
	}
	chosen := choose(found.variants, r.Header.Get("Accept-Encoding"))
	header.Set("Cache-Control", found.cache)
	header.Set("ETag", chosen.tag)
	header.Add("Vary", "Accept-Encoding")
	if !given {
		header.Add("Vary", "Accept")
	}
	if known(r.Header.Values("If-None-Match"), chosen.tag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	header.Set("Content-Type", found.contentType)
	header.Set("Content-Length", strconv.Itoa(len(chosen.content)))
	if chosen.encoding != "" {
		header.Set("Content-Encoding", chosen.encoding)
	}
	_, _ = w.Write(chosen.content)
}

// serveWithNonce writes index.html with a nonce of its own, which must not be stored.
func (c *Console) serveWithNonce(w http.ResponseWriter) {
	var random [nonceBytes]byte
	_, _ = rand.Read(random[:])
	nonce := base64.RawStdEncoding.EncodeToString(random[:])
	page := bytes.Join(c.around, []byte(nonce))
	header := w.Header()
	pageHeaders(header, nonce)
	header.Set("Content-Type", types[".html"])
	header.Set("Content-Length", strconv.Itoa(len(page)))
	_, _ = w.Write(page)
}

// pageHeaders sets what a page may load and do: nothing of other hosts, no inline script or style, and no
// text that becomes HTML or script but addresses of scripts that the named policy made.
func pageHeaders(header http.Header, nonce string) {
	style := "style-src 'self'"
	if nonce != "" {
		style += " 'nonce-" + nonce + "'"
	}
	header.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; "+style+
		"; img-src 'self' blob: data:; font-src 'self'; connect-src 'self'; worker-src 'self'; "+
		"manifest-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "+
		"object-src 'none'; require-trusted-types-for 'script'; trusted-types "+policyName)
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Permissions-Policy", "accelerometer=(), camera=(), display-capture=(), geolocation=(), "+
		"gyroscope=(), magnetometer=(), microphone=(), midi=(), payment=(), usb=(), "+
		"clipboard-read=(), clipboard-write=(self)")
}

// choose returns the first variant that the client accepts; the plain one is last.
func choose(variants []variant, accepted string) variant {
	for _, one := range variants[:len(variants)-1] {
		if accepts(accepted, one.encoding) {
			return one
		}
	}
	return variants[len(variants)-1]
}

func accepts(header, encoding string) bool {
	for each := range strings.SplitSeq(header, ",") {
		name, parameters, _ := strings.Cut(each, ";")
		if strings.EqualFold(strings.TrimSpace(name), encoding) {
			weight, given := strings.CutPrefix(strings.TrimSpace(parameters), "q=")
			value, err := strconv.ParseFloat(weight, 64)
			return !given || err != nil || value > 0
		}
	}
	return false
}

func known(headers []string, tag string) bool {
	for each := range strings.SplitSeq(strings.Join(headers, ","), ",") {
		each = strings.TrimPrefix(strings.TrimSpace(each), "W/")
		if each == tag || each == "*" {
			return true
		}
	}
	return false
}
