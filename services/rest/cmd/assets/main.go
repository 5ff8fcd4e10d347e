// Command assets copies the build of the web console to where it is embedded, each text beside its
// forms compressed by brotli and gzip, so that nothing is compressed while it is served.
//
//	go run ./cmd/assets BUILD FOLDER
//
// Without a BUILD the folder is emptied.
package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/andybalholm/brotli"
)

// Files of these kinds are compressed already.
var compressed = []string{".png", ".jpg", ".jpeg", ".webp", ".avif", ".woff2", ".woff", ".gz", ".br"}

// Smaller files gain nothing.
const smallest = 512

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "assets: usage: assets BUILD FOLDER")
		os.Exit(1)
	}
	if err := embed(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "assets:", err)
		os.Exit(1)
	}
}

func embed(build, folder string) error {
	if err := clear(folder); err != nil {
		return err
	}
	err := filepath.WalkDir(build, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || strings.HasSuffix(path, ".map") {
			return err
		}
		name, err := filepath.Rel(build, path)
		if err != nil {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return write(filepath.Join(folder, name), content)
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// clear removes all but the file that keeps the folder in the repository.
func clear(folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), ".") {
			continue
		}
		if err := os.RemoveAll(filepath.Join(folder, entry.Name())); err != nil {
			return err
		}
	}
	return nil
}

func write(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path, content, 0o644); err != nil {
		return err
	}
	if len(content) < smallest || slices.Contains(compressed, strings.ToLower(filepath.Ext(path))) {
		return nil
	}
	for ending, compress := range map[string]func(io.Writer) io.WriteCloser{
		".br": func(w io.Writer) io.WriteCloser { return brotli.NewWriterLevel(w, brotli.BestCompression) },
		".gz": func(w io.Writer) io.WriteCloser {
			made, _ := gzip.NewWriterLevel(w, gzip.BestCompression) // the level is one of its own
			return made
		},
	} {
		var packed bytes.Buffer
		writer := compress(&packed)
		if _, err := writer.Write(content); err != nil {
			return err
		}
		if err := writer.Close(); err != nil {
			return err
		}
		if packed.Len() >= len(content) {
			continue
		}
		if err := os.WriteFile(path+ending, packed.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}
