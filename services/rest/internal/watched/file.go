// Package watched reloads files (keys, certificates) that are replaced while the process runs.
package watched

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"
)

const mostBytes = 64 * 1024

// File holds the parsed content of a file. If the file is missing, empty, too large or invalid, the
// former content stays in use and a warning is logged. Content is never logged.
type File[T any] struct {
	path, variable string
	parse          func(text []byte) (T, error)
	refresh        time.Duration
	log            *slog.Logger

	mutex  sync.Mutex
	held   T
	seen   stamp
	looked time.Time
}

type stamp struct {
	changed time.Time
	size    int64
}

// Open reads the file that variable names. parse returns its value, or an error with the expected
// format and without content.
func Open[T any](
	path, variable string, parse func([]byte) (T, error), refresh time.Duration, log *slog.Logger,
) (*File[T], error) {
	file := &File[T]{path: path, variable: variable, parse: parse, refresh: refresh, log: log}
	file.seen, file.looked = stampOf(path), time.Now()
	var err error
	if file.held, err = file.read(); err != nil {
		return nil, errors.New(variable + ": " + err.Error())
	}
	return file, nil
}

// Current returns the present value.
func (f *File[T]) Current() T {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if time.Since(f.looked) < f.refresh {
		return f.held
	}
	f.looked = time.Now()
	now := stampOf(f.path)
	if now == f.seen {
		return f.held
	}
	f.seen = now
	read, err := f.read()
	if err != nil {
		f.log.Error("secret not replaced", "variable", f.variable, "problem", err.Error())
		return f.held
	}
	f.log.Info("secret replaced", "variable", f.variable)
	f.held = read
	return read
}

func (f *File[T]) read() (T, error) {
	var none T
	file, err := os.Open(f.path)
	if err != nil {
		return none, errors.New("the file cannot be read")
	}
	defer func() { _ = file.Close() }()
	text, err := io.ReadAll(io.LimitReader(file, mostBytes+1))
	if err != nil {
		return none, errors.New("the file cannot be read")
	}
	if len(text) > mostBytes {
		return none, errors.New("the file is too large")
	}
	return f.parse(text)
}

// stampOf returns a stamp that changes when the file is replaced; zero for a missing file.
func stampOf(path string) stamp {
	found, err := os.Stat(path)
	if err != nil {
		return stamp{}
	}
	return stamp{found.ModTime(), found.Size()}
}
