package console

import (
	"bytes"
	"compress/gzip"
	"encoding/xml"
	"errors"
	"fmt"
	escaping "html"
	"image/png"
	"io"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// DefaultName is the name of the product in index.html as it is built.
	DefaultName = "Bos"
	logoPath    = "/logo"

	mostNameRunes = 40
	mostLogoBytes = 256 << 10
	mostLogoSide  = 2048
)

// Brand is how an installation calls itself; its zero value changes nothing.
type Brand struct {
	Name string
	// Logo is a PNG or SVG image; nil: the one of the build.
	Logo     []byte
	logoType string
}

// LoadBrand reads a brand: name is shown as it is, logoFile is a PNG or SVG file. Both may be empty.
// Errors name the variable, and hold no content.
func LoadBrand(name, logoFile string) (Brand, error) {
	if !isName(name) {
		return Brand{}, fmt.Errorf(
			"BOS_REST_BRAND_NAME: must be at most %d visible characters", mostNameRunes)
	}
	brand := Brand{Name: name}
	if logoFile == "" {
		return brand, nil
	}
	opened, err := os.Open(logoFile)
	if err != nil {
		return Brand{}, errors.New("BOS_REST_BRAND_LOGO_FILE: cannot be read")
	}
	defer func() { _ = opened.Close() }()
	content, err := io.ReadAll(io.LimitReader(opened, mostLogoBytes+1))
	if err != nil {
		return Brand{}, errors.New("BOS_REST_BRAND_LOGO_FILE: cannot be read")
	}
	if len(content) > mostLogoBytes {
		return Brand{}, fmt.Errorf("BOS_REST_BRAND_LOGO_FILE: must have at most %d KiB", mostLogoBytes>>10)
	}
	switch {
	case isPNG(content):
		brand.Logo, brand.logoType = content, types[".png"]
	case isSVG(content):
		brand.Logo, brand.logoType = content, types[".svg"]
	default:
		return Brand{}, fmt.Errorf(
			"BOS_REST_BRAND_LOGO_FILE: must be a PNG of at most %d pixels a side, or an SVG", mostLogoSide)
	}
	return brand, nil
}

// isName refuses what does not show, or turns the writing direction of what follows.
func isName(text string) bool {
	return utf8.ValidString(text) && utf8.RuneCountInString(text) <= mostNameRunes &&
		strings.TrimSpace(text) == text && !strings.ContainsFunc(text, func(one rune) bool {
		return !unicode.IsPrint(one) && one != ' '
	})
}

func isPNG(content []byte) bool {
	size, err := png.DecodeConfig(bytes.NewReader(content))
	return err == nil && size.Width <= mostLogoSide && size.Height <= mostLogoSide
}

// isSVG reports whether this is one XML document whose root is svg, without a document type, which
// could define entities. What scripts it may hold do not run: it is shown as an image alone, and its
// own headers allow nothing.
func isSVG(content []byte) bool {
	decoder := xml.NewDecoder(bytes.NewReader(content))
	depth, roots := 0, 0
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return roots == 1
		}
		if err != nil {
			return false
		}
		switch one := token.(type) {
		case xml.Directive:
			return false
		case xml.StartElement:
			if depth == 0 {
				roots++
				if one.Name.Local != "svg" || one.Name.Space != "http://www.w3.org/2000/svg" {
					return false
				}
			}
			depth++
		case xml.EndElement:
			depth--
		}
	}
}

// apply gives the pages the brand: their title, the name that their scripts read, and the icon.
func (c *Console) apply(brand Brand) {
	index := c.files[indexPath]
	page := index.variants[len(index.variants)-1].content
	replace := func(old, made string) {
		page = bytes.ReplaceAll(page, []byte(old), []byte(made))
	}
	if brand.Name != "" {
		shown := escaping.EscapeString(brand.Name)
		replace("<title>"+DefaultName+"</title>", "<title>"+shown+"</title>")
		replace(`name="application-name" content="`+DefaultName+`"`,
			`name="application-name" content="`+shown+`"`)
	}
	if brand.Logo != nil {
		replace(`href="/favicon.svg" type="image/svg+xml"`,
			`href="`+logoPath+`" type="`+brand.logoType+`"`)
		c.files[logoPath] = file{
			contentType: brand.logoType, cache: "no-cache", variants: []variant{variantOf("", brand.Logo)},
		}
	}
	index.variants = []variant{variantOf("gzip", gzipped(page)), variantOf("", page)}
	c.files[indexPath] = index
}

func gzipped(content []byte) []byte {
	var made bytes.Buffer
	writer := gzip.NewWriter(&made)
	_, _ = writer.Write(content) // into memory
	_ = writer.Close()
	return made.Bytes()
}
