package server

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	filesv1 "bos/rest/gen/bos/files/v1"
	"bos/rest/internal/settings"
)

// workspace is a real gRPC server of one file.
type workspace struct {
	filesv1.UnimplementedFileServiceServer

	mu      sync.Mutex
	name    string
	content []byte
	ended   chan error
}

func (f *workspace) UploadFile(call filesv1.FileService_UploadFileServer) error {
	err := f.receive(call)
	f.ended <- err
	return err
}

func (f *workspace) receive(call filesv1.FileService_UploadFileServer) error {
	first, err := call.Recv()
	if err != nil {
		return err
	}
	if first.GetUpload().GetName() == "refused.txt" {
		return refused(codes.ResourceExhausted, "FILE_COUNT_LIMIT")
	}
	var content []byte
	for {
		part, err := call.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		content = append(content, part.GetContent()...)
	}
	f.mu.Lock()
	f.name, f.content = first.GetUpload().GetName(), content
	f.mu.Unlock()
	return call.SendAndClose(&filesv1.UploadFileResponse{File: &filesv1.File{Name: f.name}})
}

func (f *workspace) DownloadFile(
	request *filesv1.DownloadFileRequest, call filesv1.FileService_DownloadFileServer,
) error {
	if request.GetName() != "रिपोर्ट page.html" || request.GetVersion() > 1 {
		return refused(codes.NotFound, "NOT_FOUND")
	}
	file := &filesv1.File{Name: request.GetName(), MediaType: "text/html", SizeBytes: 6}
	err := call.Send(&filesv1.DownloadFileResponse{File: file, Content: []byte("abc")})
	if err != nil {
		return err
	}
	return call.Send(&filesv1.DownloadFileResponse{Content: []byte("def")})
}

func withWorkspace(t *testing.T) (*Server, *workspace) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server, f := grpc.NewServer(), &workspace{ended: make(chan error, 16)}
	filesv1.RegisterFileServiceServer(server, f)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return start(t, startGateway(t, "").target, func(s *settings.Settings) {
		s.FilesTarget = listener.Addr().String()
	}), f
}

func TestAnUploadIntoAWorkspacePassesThrough(t *testing.T) {
	s, f := withWorkspace(t)
	content := bytes.Repeat([]byte("0123456789abcdef"), 50_000)
	kind, body := form(t, "a.pdf", content)
	response, answer := post(t, s, "/v1/files", kind, bytes.NewReader(body))
	if response.StatusCode != http.StatusOK || !strings.Contains(answer, `"name":"a.pdf"`) {
		t.Fatalf("%s %s", response.Status, answer)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.name != "a.pdf" || !bytes.Equal(f.content, content) {
		t.Errorf("%s: %d bytes", f.name, len(f.content))
	}
}

func TestAFormOfAWorkspaceThatIsNotWholeStoresNothing(t *testing.T) {
	s, f := withWorkspace(t)
	kind, body := form(t, "a.txt", []byte("content"))
	_, other := form(t, "a.txt", []byte("content"), "folder", "x")
	boundary := strings.TrimPrefix(kind, "multipart/form-data; boundary=")
	for name, one := range map[string]struct {
		kind   string
		body   []byte
		status int
	}{
		"no form":          {"text/plain", body, http.StatusUnsupportedMediaType},
		"half":             {kind, body[:len(body)/2], http.StatusBadRequest},
		"no last boundary": {kind, bytes.Replace(body, []byte("--"+boundary+"--"), nil, 1), http.StatusBadRequest},
		"another field":    {kind, other, http.StatusBadRequest},
	} {
		response, answer := post(t, s, "/v1/files", one.kind, bytes.NewReader(one.body))
		if response.StatusCode != one.status {
			t.Errorf("%s: %s %s", name, response.Status, answer)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.name != "" {
		t.Errorf("stored %s", f.name)
	}
}

func TestARefusalOfAWorkspaceReachesTheCaller(t *testing.T) {
	s, _ := withWorkspace(t)
	kind, body := form(t, "refused.txt", bytes.Repeat([]byte("x"), 2_000_000))
	response, answer := post(t, s, "/v1/files", kind, bytes.NewReader(body))
	if response.StatusCode != http.StatusTooManyRequests ||
		!strings.Contains(answer, "FILE_COUNT_LIMIT") {
		t.Errorf("%s %s", response.Status, answer)
	}
}

func TestAFileOfAWorkspaceIsAnAttachmentThatNoBrowserRuns(t *testing.T) {
	s, _ := withWorkspace(t)
	get := func(path string) (*http.Response, string) {
		request, err := http.NewRequestWithContext(
			t.Context(), http.MethodGet, "http://"+s.Address()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+key)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		content, _ := io.ReadAll(response.Body)
		return response, string(content)
	}
	path := "/v1/files/%E0%A4%B0%E0%A4%BF%E0%A4%AA%E0%A5%8B%E0%A4%B0%E0%A5%8D%E0%A4%9F%20page.html"
	response, content := get(path + "?version=1")
	if response.StatusCode != http.StatusOK || content != "abcdef" {
		t.Fatalf("%s %s", response.Status, content)
	}
	header := response.Header
	if header.Get("Content-Type") != "application/octet-stream" ||
		!strings.HasPrefix(header.Get("Content-Disposition"), "attachment") ||
		header.Get("X-Content-Type-Options") != "nosniff" ||
		!strings.Contains(header.Get("Content-Security-Policy"), "sandbox") {
		t.Errorf("%v", header)
	}
	for path, status := range map[string]int{
		path + "?version=2":                http.StatusNotFound,
		path + "?version=x":                http.StatusBadRequest,
		path + "?version=9999999999":       http.StatusBadRequest,
		"/v1/files/missing":                http.StatusNotFound,
		"/v1/files/..%2F..%2Fetc%2Fshadow": http.StatusNotFound,
	} {
		if response, content := get(path); response.StatusCode != status {
			t.Errorf("%s: %s %s", path, response.Status, content)
		}
	}
}
