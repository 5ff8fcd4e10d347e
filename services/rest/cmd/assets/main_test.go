package main

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/andybalholm/brotli"
)

func TestBuildIsCopiedBesideItsCompressedForms(t *testing.T) {
	source, folder := t.TempDir(), t.TempDir()
	script := strings.Repeat("export const answer = 42;\n", 100)
	put := func(root, name, content string) {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	put(source, "index.html", "<html>")
	put(source, "assets/app-1.js", script)
	put(source, "assets/app-1.js.map", script)
	put(source, "assets/font-1.woff2", script)
	put(folder, "assets/app-0.js", "of the build before")
	put(folder, ".gitignore", "*")
	if err := embed(source, folder); err != nil {
		t.Fatal(err)
	}
	var found []string
	if err := filepath.WalkDir(folder, func(path string, entry os.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			name, _ := filepath.Rel(folder, path)
			found = append(found, name)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	want := ".gitignore assets/app-1.js assets/app-1.js.br assets/app-1.js.gz assets/font-1.woff2 index.html"
	if got := strings.Join(found, " "); got != want {
		t.Errorf("%s, not %s", got, want)
	}
	for ending, open := range map[string]func(io.Reader) (io.Reader, error){
		".br": func(r io.Reader) (io.Reader, error) { return brotli.NewReader(r), nil },
		".gz": func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) },
	} {
		packed, err := os.ReadFile(filepath.Join(folder, "assets/app-1.js"+ending))
		if err != nil {
			t.Fatal(err)
		}
		reader, err := open(bytes.NewReader(packed))
		if err != nil {
			t.Fatal(err)
		}
		if content, err := io.ReadAll(reader); err != nil || string(content) != script {
			t.Errorf("%s does not hold the script: %v", ending, err)
		}
	}
	if err := embed(filepath.Join(source, "missing"), folder); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) != 1 {
		t.Errorf("without a build the folder is emptied: %v", left)
	}
}
