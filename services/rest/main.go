// Command bos-rest offers the services of Bos over HTTP: JSON, server-sent events, OpenAPI.
// `bos-rest probe` asks the one that runs with the same settings whether it is ready.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"bos/rest/internal/probe"
	"bos/rest/internal/server"
	"bos/rest/internal/settings"
	"bos/rest/internal/telemetry"
)

// Exit code for invalid settings, as in all of Bos: a restart without a change would fail again.
const exitConfiguration = 78

func main() { os.Exit(run()) }

func run() int {
	read, err := settings.Load(environment())
	if err != nil {
		fmt.Fprintln(os.Stderr, "bos-rest:", err)
		return exitConfiguration
	}
	if len(os.Args) > 1 {
		return command(os.Args[1], read)
	}
	log := telemetry.Logger(os.Stderr, read.LogLevel)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	running, err := server.Start(context.Background(), read, log)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bos-rest:", err)
		return exitConfiguration
	}
	announce(running)
	closed := make(chan struct{})
	if read.StopWithStdin {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			close(closed)
		}()
	}
	select {
	case err := <-running.Ended():
		log.Error("listener failed", "error", err.Error())
		return 1
	case <-signals:
	case <-closed:
	}
	go func() {
		<-signals // the second one is not patient
		os.Exit(1)
	}()
	running.Stop()
	return 0
}

func command(name string, read settings.Settings) int {
	if name != "probe" {
		fmt.Fprintf(os.Stderr, "bos-rest: %q is no command; the only one is probe\n", name)
		return exitConfiguration
	}
	if err := probe.Ready(context.Background(), read); err != nil {
		fmt.Fprintln(os.Stderr, "bos-rest: not ready:", err)
		return 1
	}
	return 0
}

func environment() map[string]string {
	found := map[string]string{}
	for _, entry := range os.Environ() {
		name, value, _ := strings.Cut(entry, "=")
		found[name] = value
	}
	return found
}

func announce(running *server.Server) {
	line := map[string]any{
		"event": "serving", "service": "rest", "address": running.Address(), "pid": os.Getpid(),
	}
	if at := running.MetricsAddress(); at != "" {
		line["metrics_address"] = at
	}
	text, _ := json.Marshal(line)
	fmt.Println(string(text))
}
