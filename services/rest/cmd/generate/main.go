// Command generate builds everything under gen/ from the image of protos/: messages, client, the
// REST mux and the OpenAPI document. Nothing is downloaded; the plugins are tools of go.mod.
//
//	go run ./cmd/generate IMAGE FOLDER
package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"

	"bos/rest/internal/apidoc"
)

const goRoot = "bos/rest/gen/"

// plugins in the order of their imports from one another.
var plugins = []struct{ name, parameter string }{
	{"protoc-gen-go", "paths=source_relative"},
	{"protoc-gen-go-grpc", "paths=source_relative"},
	{"protoc-gen-grpc-gateway", "paths=source_relative"},
}

func main() {
	if len(os.Args) != 3 {
		fail(fmt.Errorf("usage: generate IMAGE FOLDER"))
	}
	if err := generate(os.Args[1], os.Args[2]); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "generate:", err)
	os.Exit(1)
}

func generate(image, folder string) error {
	files, err := read(image)
	if err != nil {
		return err
	}
	registry, err := protodesc.NewFiles(files)
	if err != nil {
		return err
	}
	document, err := apidoc.Build(registry)
	if err != nil {
		return err
	}
	wanted := wantedFiles(files, apidoc.ServiceFiles(registry))
	// Built in a folder beside it and renamed at the end, so that an interrupted build changes nothing.
	partial := folder + ".partial"
	if err := os.RemoveAll(partial); err != nil {
		return err
	}
	for _, plugin := range plugins {
		if err := run(plugin.name, plugin.parameter, files, wanted, partial); err != nil {
			return err
		}
	}
	if err := write(filepath.Join(partial, "openapi", "openapi.json"), document); err != nil {
		return err
	}
	embed := "// Package openapi holds the generated document.\npackage openapi\n\n" +
		"import _ \"embed\"\n\n// Document is the OpenAPI document as JSON.\n//\n" +
		"//go:embed openapi.json\nvar Document []byte\n"
	if err := write(filepath.Join(partial, "openapi", "openapi.go"), []byte(embed)); err != nil {
		return err
	}
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	return os.Rename(partial, folder)
}

// read reads the image and sets the Go packages of our schemas, which have no go_package option.
func read(image string) (*descriptorpb.FileDescriptorSet, error) {
	data, err := os.ReadFile(image)
	if err != nil {
		return nil, err
	}
	files := &descriptorpb.FileDescriptorSet{}
	if err := proto.Unmarshal(data, files); err != nil {
		return nil, fmt.Errorf("%s is not an image: %w", image, err)
	}
	for _, file := range files.File {
		if !generated(file.GetName()) {
			continue
		}
		if file.Options == nil {
			file.Options = &descriptorpb.FileOptions{}
		}
		folder := filepath.ToSlash(filepath.Dir(file.GetName()))
		name := strings.ReplaceAll(strings.TrimPrefix(folder, "bos/"), "/", "")
		file.Options.GoPackage = proto.String(goRoot + folder + ";" + name)
		if strings.HasPrefix(file.GetName(), "bos/") {
			oneName(file.MessageType)
		}
	}
	return files, nil
}

// oneName makes the schema's name the only JSON name of a field, for requests, responses, the
// document and errors alike.
func oneName(messages []*descriptorpb.DescriptorProto) {
	for _, message := range messages {
		for _, field := range message.Field {
			field.JsonName = field.Name
		}
		oneName(message.NestedType)
	}
}

func generated(name string) bool {
	return strings.HasPrefix(name, "bos/") || strings.HasPrefix(name, "buf/")
}

// wantedFiles lists the public services and their dependencies, in the order of the image.
func wantedFiles(files *descriptorpb.FileDescriptorSet, roots []string) []string {
	imports := map[string][]string{}
	for _, file := range files.File {
		imports[file.GetName()] = file.Dependency
	}
	needed := map[string]bool{}
	var visit func(string)
	visit = func(name string) {
		if needed[name] || !generated(name) {
			return
		}
		needed[name] = true
		for _, imported := range imports[name] {
			visit(imported)
		}
	}
	for _, root := range roots {
		visit(root)
	}
	var wanted []string
	for _, file := range files.File {
		if needed[file.GetName()] {
			wanted = append(wanted, file.GetName())
		}
	}
	return wanted
}

func run(
	plugin, parameter string, files *descriptorpb.FileDescriptorSet, wanted []string, folder string,
) error {
	request, err := proto.Marshal(&pluginpb.CodeGeneratorRequest{
		FileToGenerate: wanted,
		Parameter:      proto.String(parameter),
		ProtoFile:      files.File,
	})
	if err != nil {
		return err
	}
	tool := exec.Command("go", "tool", plugin)
	tool.Stdin = bytes.NewReader(request)
	tool.Stderr = os.Stderr
	answer, err := tool.Output()
	if err != nil {
		return fmt.Errorf("%s: %w", plugin, err)
	}
	response := &pluginpb.CodeGeneratorResponse{}
	if err := proto.Unmarshal(answer, response); err != nil {
		return fmt.Errorf("%s: %w", plugin, err)
	}
	if response.Error != nil {
		return fmt.Errorf("%s: %s", plugin, response.GetError())
	}
	for _, file := range response.File {
		path := filepath.Join(folder, filepath.FromSlash(file.GetName()))
		if err := write(path, []byte(file.GetContent())); err != nil {
			return err
		}
	}
	return nil
}

func write(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, content, 0o644)
}
