package server

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	commonv1 "bos/rest/gen/bos/common/v1"
	gatewayv1 "bos/rest/gen/bos/gateway/v1"
)

var anyDigest = strings.Repeat("0", 64)

// DownloadFile sends a file in two parts; its name and media type are in the run's id.
func (g *gateway) DownloadFile(
	request *gatewayv1.DownloadFileRequest, call grpc.ServerStreamingServer[gatewayv1.DownloadFileResponse],
) error {
	g.seen(call.Context())
	file := &commonv1.Artefact{Name: "chart.png", MediaType: "image/png", SizeBytes: 6}
	switch request.GetRunId() {
	case "missing":
		return refused(codes.NotFound, "FILE_NOT_FOUND")
	case "nothing":
		return nil
	case "page":
		file.MediaType = "text/html"
	case "drawing":
		file.MediaType = "image/svg+xml"
	case "named":
		file.Name = "a\"b\r\nSet-Cookie: x=1; \u00e9.csv"
		file.MediaType = "text/csv"
	}
	if err := call.Send(&gatewayv1.DownloadFileResponse{File: file, Content: []byte("abc")}); err != nil {
		return err
	}
	if request.GetRunId() == "broken" {
		return status.Error(codes.Unavailable, "going away")
	}
	return call.Send(&gatewayv1.DownloadFileResponse{Content: []byte("def")})
}

func fetch(t *testing.T, s *Server, method, run string) (*http.Response, string, error) {
	t.Helper()
	request, err := http.NewRequest(method, "http://"+s.Address()+"/v1/runs/"+run+"/files/"+anyDigest, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+key)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	return response, string(content), err
}

func TestFileIsSentUnchangedAsAnAttachment(t *testing.T) {
	s := start(t, startGateway(t, "").target, nil)
	for run, kind := range map[string]string{
		"r1": "image/png", "page": "application/octet-stream", "drawing": "application/octet-stream",
		"named": "text/csv; charset=utf-8",
	} {
		response, content, err := fetch(t, s, http.MethodGet, run)
		if err != nil || response.StatusCode != http.StatusOK || content != "abcdef" {
			t.Fatalf("%s: %v %v %q", run, err, response.Status, content)
		}
		header := response.Header
		if got := header.Get("Content-Type"); got != kind {
			t.Errorf("%s: Content-Type is %q", run, got)
		}
		if header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: may be sniffed", run)
		}
		if got := header.Get("Content-Disposition"); !strings.HasPrefix(got, "attachment") {
			t.Errorf("%s: Content-Disposition is %q", run, got)
		}
		if got := header.Get("Content-Security-Policy"); !strings.Contains(got, "sandbox") {
			t.Errorf("%s: Content-Security-Policy is %q", run, got)
		}
		if response.ContentLength != 6 {
			t.Errorf("%s: Content-Length is %d", run, response.ContentLength)
		}
		if len(response.Cookies()) != 0 {
			t.Errorf("%s: the name became a header", run)
		}
	}
}

func TestMissingFileIsAnError(t *testing.T) {
	s := start(t, startGateway(t, "").target, nil)
	response, content, _ := fetch(t, s, http.MethodGet, "missing")
	if response.StatusCode != http.StatusNotFound || !strings.Contains(content, "FILE_NOT_FOUND") {
		t.Errorf("%s %s", response.Status, content)
	}
	if response.Header.Get("Content-Disposition") != "" {
		t.Error("an error is no attachment")
	}
	response, content, _ = fetch(t, s, http.MethodGet, "nothing")
	if response.StatusCode < 500 || strings.Contains(content, "EOF") {
		t.Errorf("%s %s", response.Status, content)
	}
}

func TestInterruptedFileIsShorterThanItsContentLength(t *testing.T) {
	s := start(t, startGateway(t, "").target, nil)
	if _, content, err := fetch(t, s, http.MethodGet, "broken"); err == nil {
		t.Errorf("got %q as if it were whole", content)
	}
}

func TestHeadRequestDescribesTheFile(t *testing.T) {
	s := start(t, startGateway(t, "").target, nil)
	response, content, err := fetch(t, s, http.MethodHead, "r1")
	if err != nil || content != "" || response.Header.Get("Content-Type") != "image/png" {
		t.Errorf("%v %q %v", err, content, response.Header)
	}
}
