package console

import (
	"bytes"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	index = `<title>Bos</title><meta name="application-name" content="Bos" />` +
		`<link rel="icon" href="/favicon.svg" type="image/svg+xml" />`
	svg = `<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>`
)

func written(t *testing.T, content string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "logo")
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func pngOf(t *testing.T, side int) string {
	t.Helper()
	var made bytes.Buffer
	if err := png.Encode(&made, image.NewGray(image.Rect(0, 0, side, side))); err != nil {
		t.Fatal(err)
	}
	return made.String()
}

func branded(t *testing.T, name, logo string) *Console {
	t.Helper()
	brand, err := LoadBrand(name, logo)
	if err != nil {
		t.Fatal(err)
	}
	console, err := New(build(index), brand)
	if err != nil {
		t.Fatal(err)
	}
	return console
}

func TestPagesHaveTheNameAndLogoOfTheInstallation(t *testing.T) {
	console := branded(t, `Ask & "Co" <b>`, written(t, svg))
	page := get(console, "/", html).Body.String()
	for _, want := range []string{
		"<title>Ask &amp; &#34;Co&#34; &lt;b&gt;</title>",
		`name="application-name" content="Ask &amp; &#34;Co&#34; &lt;b&gt;"`,
		`href="/logo" type="image/svg+xml"`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %s: %s", want, page)
		}
	}
	logo := get(console, "/logo")
	if logo.Body.String() != svg || logo.Header().Get("Content-Type") != "image/svg+xml" {
		t.Errorf("the logo is served as %v", logo.Header())
	}
	compressed := get(console, "/", html, "Accept-Encoding: br, gzip")
	if compressed.Header().Get("Content-Encoding") != "gzip" {
		t.Errorf("the page as it was built is served: %v", compressed.Header())
	}
}

func TestWithoutABrandPagesAreAsTheyWereBuilt(t *testing.T) {
	console := branded(t, "", "")
	if got := get(console, "/", html).Body.String(); got != index {
		t.Errorf("the page is %s", got)
	}
	if get(console, "/logo") != nil {
		t.Error("there is a logo")
	}
	if got := get(branded(t, "", written(t, pngOf(t, 8))), "/logo"); got.Header().Get("Content-Type") != "image/png" {
		t.Errorf("a PNG is served as %v", got.Header())
	}
}

func TestBrandsThatCannotBeShownAreRefused(t *testing.T) {
	for _, name := range []string{strings.Repeat("x", 41), "a\u202eb", "a\u200bb", "a\nb", " a", "\xff"} {
		if _, err := LoadBrand(name, ""); err == nil || !strings.HasPrefix(err.Error(), "BOS_REST_BRAND_NAME: ") {
			t.Errorf("%q is accepted: %v", name, err)
		}
	}
	if _, err := LoadBrand(strings.Repeat("ß", 40), written(t, pngOf(t, 2048))); err != nil {
		t.Error(err)
	}
	for what, content := range map[string]string{
		"nothing":         "",
		"HTML":            "<html></html>",
		"svg of no kind":  "<svg></svg>",
		"entities":        `<!DOCTYPE svg [<!ENTITY a "b">]>` + svg,
		"two documents":   svg + svg,
		"cut":             svg[:40],
		"too many pixels": pngOf(t, 2049),
		"a PNG's head":    "\x89PNG\r\n\x1a\n",
		"too many bytes":  svg + strings.Repeat(" ", 256<<10),
	} {
		_, err := LoadBrand("", written(t, content))
		if err == nil || !strings.HasPrefix(err.Error(), "BOS_REST_BRAND_LOGO_FILE: ") {
			t.Errorf("%s is accepted: %v", what, err)
		}
	}
	if _, err := LoadBrand("", "/nowhere/logo.svg"); err == nil || strings.Contains(err.Error(), "nowhere") {
		t.Errorf("a missing file: %v", err)
	}
}
