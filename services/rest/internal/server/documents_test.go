package server

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	documentsv1 "bos/rest/gen/bos/documents/v1"
	"bos/rest/internal/settings"
)

// documents is a real gRPC server of documents.
type documents struct {
	documentsv1.UnimplementedDocumentsServiceServer
	target string
	ended  chan error
	watch  chan documentsv1.DocumentState

	mu      sync.Mutex
	states  []documentsv1.DocumentState
	header  *documentsv1.DocumentUpload
	content []byte
	largest int
}

func startDocuments(t *testing.T) *documents {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	d := &documents{
		target: listener.Addr().String(), ended: make(chan error, 16),
		watch: make(chan documentsv1.DocumentState),
	}
	documentsv1.RegisterDocumentsServiceServer(server, d)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return d
}

func (d *documents) ListDocuments(
	_ context.Context, request *documentsv1.ListDocumentsRequest,
) (*documentsv1.ListDocumentsResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.states = request.GetStates()
	return &documentsv1.ListDocumentsResponse{}, nil
}

func (d *documents) UploadDocument(call documentsv1.DocumentsService_UploadDocumentServer) error {
	err := d.receive(call)
	d.ended <- err
	return err
}

func (d *documents) receive(call documentsv1.DocumentsService_UploadDocumentServer) error {
	first, err := call.Recv()
	if err != nil {
		return err
	}
	d.mu.Lock()
	d.header, d.content, d.largest = first.GetUpload(), nil, 0
	d.mu.Unlock()
	if first.GetUpload().GetName() == "refused.txt" {
		return refused(codes.ResourceExhausted, "DOCUMENT_COUNT_LIMIT")
	}
	for {
		part, err := call.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		d.mu.Lock()
		d.content = append(d.content, part.GetContent()...)
		d.largest = max(d.largest, len(part.GetContent()))
		d.mu.Unlock()
	}
	return call.SendAndClose(&documentsv1.UploadDocumentResponse{
		Document: &documentsv1.Document{DocumentId: "d1", Name: first.GetUpload().GetName()},
	})
}

func (d *documents) WatchDocument(
	request *documentsv1.WatchDocumentRequest,
	call documentsv1.DocumentsService_WatchDocumentServer,
) error {
	if request.GetDocumentId() == "missing" {
		return refused(codes.NotFound, "NOT_FOUND")
	}
	for {
		select {
		case <-call.Context().Done():
			d.ended <- call.Context().Err()
			return call.Context().Err()
		case state, more := <-d.watch:
			if !more {
				return nil
			}
			err := call.Send(&documentsv1.WatchDocumentResponse{
				Document: &documentsv1.Document{DocumentId: "d1", State: state},
			})
			if err != nil { // the call may end while it sends
				d.ended <- err
				return err
			}
		}
	}
}

func withDocuments(t *testing.T, set func(*settings.Settings)) (*Server, *documents) {
	t.Helper()
	d := startDocuments(t)
	return start(t, startGateway(t, "").target, func(s *settings.Settings) {
		s.DocumentsTarget = d.target
		if set != nil {
			set(s)
		}
	}), d
}

// form writes fields, then a file.
func form(t *testing.T, name string, content []byte, fields ...string) (string, []byte) {
	t.Helper()
	var body bytes.Buffer
	writer := multipart.NewWriter(&body)
	for i := 0; i < len(fields); i += 2 {
		if err := writer.WriteField(fields[i], fields[i+1]); err != nil {
			t.Fatal(err)
		}
	}
	part, err := writer.CreateFormFile("file", name)
	if err == nil {
		_, err = part.Write(content)
	}
	if err == nil {
		err = writer.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return writer.FormDataContentType(), body.Bytes()
}

func post(
	t *testing.T, s *Server, path, kind string, body io.Reader,
) (*http.Response, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(
		t.Context(), http.MethodPost, "http://"+s.Address()+path, body)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+key)
	request.Header.Set("Content-Type", kind)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	content, _ := io.ReadAll(response.Body)
	return response, string(content)
}

func TestAnUploadPassesThroughInPieces(t *testing.T) {
	s, d := withDocuments(t, nil)
	content := bytes.Repeat([]byte("0123456789abcdef"), 200_000)
	for _, path := range []string{"/v1/documents", "/upload"} {
		kind, body := form(t, "../a.pdf", content, "document_type", "contract", "document_date", "2026-01-02")
		// Of unknown length, as a program sends what it reads.
		response, answer := post(t, s, path, kind, io.MultiReader(bytes.NewReader(body)))
		if response.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s %s", path, response.Status, answer)
		}
		var said struct {
			Document struct {
				DocumentID string `json:"document_id"`
			}
			Existed *bool
		}
		if err := json.Unmarshal([]byte(answer), &said); err != nil || said.Document.DocumentID != "d1" || said.Existed == nil {
			t.Errorf("%s: %v %s", path, err, answer)
		}
		d.mu.Lock()
		if !bytes.Equal(d.content, content) || d.largest > pieceBytes {
			t.Errorf("%s: %d bytes, at most %d at once", path, len(d.content), d.largest)
		}
		if d.header.GetDocumentType() != "contract" || d.header.GetDocumentDate() != "2026-01-02" ||
			d.header.GetName() != "../a.pdf" {
			t.Errorf("%s: %v", path, d.header)
		}
		d.mu.Unlock()
	}
}

func TestAFormThatIsNotWholeStoresNothing(t *testing.T) {
	s, d := withDocuments(t, nil)
	kind, body := form(t, "a.txt", []byte("content"))
	fields := func(names ...string) []byte {
		var pairs []string
		for _, name := range names {
			pairs = append(pairs, name, "x")
		}
		_, made := form(t, "a.txt", []byte("content"), pairs...)
		return made
	}
	boundary := strings.TrimPrefix(kind, "multipart/form-data; boundary=")
	behind := bytes.Replace(body, []byte("--"+boundary+"--"), []byte("--"+boundary+
		"\r\nContent-Disposition: form-data; name=\"more\"\r\n\r\nx\r\n--"+boundary+"--"), 1)
	for name, one := range map[string]struct {
		kind   string
		body   []byte
		status int
		reason string
	}{
		"json":            {"application/json", []byte("{}"), 415, "BODY_NOT_A_FORM"},
		"no boundary":     {"multipart/form-data", body, 415, "BODY_NOT_A_FORM"},
		"another one":     {"multipart/form-data; boundary=x", body, 400, "INVALID_ARGUMENT"},
		"nothing":         {kind, nil, 400, "INVALID_ARGUMENT"},
		"cut in the file": {kind, body[:len(body)-len(boundary)-9], 400, "INVALID_ARGUMENT"},
		"cut at the end":  {kind, body[:len(body)-4], 400, "INVALID_ARGUMENT"},
		"cut in its head": {kind, body[:20], 400, "INVALID_ARGUMENT"},
		"a part behind":   {kind, behind, 400, "INVALID_ARGUMENT"},
	} {
		response, answer := post(t, s, "/v1/documents", one.kind, bytes.NewReader(one.body))
		if response.StatusCode != one.status || !strings.Contains(answer, one.reason) {
			t.Errorf("%s: %s %s", name, response.Status, answer)
		}
	}
	for name, made := range map[string][]byte{
		"unknown": fields("other"), "twice": fields("document_type", "document_type"),
		"too long": fields(strings.Repeat("n", 10)),
	} {
		found := bytes.Index(made, []byte("\r\n"))
		response, answer := post(t, s, "/v1/documents",
			"multipart/form-data; boundary="+string(made[2:found]), bytes.NewReader(made))
		if response.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %s %s", name, response.Status, answer)
		}
	}
	for {
		select {
		case err := <-d.ended:
			if err == nil {
				t.Error("half a form was stored")
			}
		case <-time.After(200 * time.Millisecond):
			return
		}
	}
}

func TestAnUploadIsBounded(t *testing.T) {
	s, _ := withDocuments(t, func(s *settings.Settings) { s.MaxUploadBytes = 100_000 })
	kind, body := form(t, "a.txt", make([]byte, 99_000))
	if response, answer := post(t, s, "/v1/documents", kind, bytes.NewReader(body)); response.StatusCode != 200 {
		t.Errorf("%s %s", response.Status, answer)
	}
	kind, body = form(t, "a.txt", make([]byte, 101_000))
	for _, source := range []io.Reader{bytes.NewReader(body), io.MultiReader(bytes.NewReader(body))} {
		response, answer := post(t, s, "/v1/documents", kind, source)
		if response.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("%s %s", response.Status, answer)
		}
	}
}

func TestASlowUploadIsEnded(t *testing.T) {
	s, d := withDocuments(t, func(s *settings.Settings) { s.UploadTimeout = 0.3 })
	kind, body := form(t, "a.txt", make([]byte, 10_000))
	connection, err := net.Dial("tcp", s.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	_, _ = io.WriteString(connection, "POST /v1/documents HTTP/1.1\r\nHost: "+s.Address()+
		"\r\nAuthorization: Bearer "+key+"\r\nContent-Type: "+kind+"\r\nContent-Length: 11000\r\n\r\n")
	_, _ = connection.Write(body[:5000])
	_ = connection.SetReadDeadline(time.Now().Add(patience))
	response, err := http.ReadResponse(bufio.NewReader(connection), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	answer, _ := io.ReadAll(response.Body)
	if response.StatusCode != http.StatusRequestTimeout && response.StatusCode != http.StatusGatewayTimeout {
		t.Errorf("%s %s", response.Status, answer)
	}
	if err := <-d.ended; err == nil {
		t.Error("half an upload was stored")
	}
}

func TestAServiceThatRefusesAnUploadSaysWhy(t *testing.T) {
	s, _ := withDocuments(t, nil)
	kind, body := form(t, "refused.txt", make([]byte, 3_000_000))
	response, answer := post(t, s, "/v1/documents", kind, bytes.NewReader(body))
	if response.StatusCode != http.StatusTooManyRequests || !strings.Contains(answer, "DOCUMENT_COUNT_LIMIT") {
		t.Errorf("%s %s", response.Status, answer)
	}
}

func TestAClientThatGoesEndsItsUpload(t *testing.T) {
	s, d := withDocuments(t, nil)
	kind, body := form(t, "a.txt", make([]byte, 600_000))
	reader, writer := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	request, _ := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.Address()+"/upload", reader)
	request.Header.Set("Authorization", "Bearer "+key)
	request.Header.Set("Content-Type", kind)
	go func() {
		_, _ = writer.Write(body[:500_000])
		cancel()
		_ = writer.CloseWithError(context.Canceled) // for which the client waits
	}()
	if _, err := http.DefaultClient.Do(request); err == nil {
		t.Error("half an upload was answered")
	}
	select {
	case err := <-d.ended:
		if err == nil {
			t.Error("half an upload was stored")
		}
	case <-time.After(patience):
		t.Fatal("the upload goes on")
	}
}

func TestUploadsNeedTheKeyAndTheService(t *testing.T) {
	s, _ := withDocuments(t, nil)
	kind, body := form(t, "a.txt", []byte("x"))
	response, err := http.Post("http://"+s.Address()+"/v1/documents", kind, bytes.NewReader(body))
	if err != nil || response.StatusCode != http.StatusUnauthorized {
		t.Errorf("%v %v", response, err)
	}
	_ = response.Body.Close()
	without := start(t, startGateway(t, "").target, nil)
	for _, path := range []string{"/v1/documents", "/upload"} {
		if response, _ := post(t, without, path, kind, bytes.NewReader(body)); response.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %s", path, response.Status)
		}
	}
}

func TestAParameterOfSeveralValuesIsRepeatedAndEachIsChecked(t *testing.T) {
	s, d := withDocuments(t, nil)
	path := "/v1/documents?states=DOCUMENT_STATE_QUEUED&states=DOCUMENT_STATE_READY"
	if response := send(t, s, http.MethodGet, path, ""); response.StatusCode != http.StatusOK {
		t.Error(response.Status)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	want := []documentsv1.DocumentState{
		documentsv1.DocumentState_DOCUMENT_STATE_QUEUED, documentsv1.DocumentState_DOCUMENT_STATE_READY,
	}
	if !slices.Equal(d.states, want) {
		t.Error(d.states)
	}
	for _, second := range []string{"SLEEPING", "%00", "%ff"} {
		path := "/v1/documents?states=DOCUMENT_STATE_QUEUED&states=" + second
		if response := send(t, s, http.MethodGet, path, ""); response.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %s", second, response.Status)
		}
	}
}

func watchOf(t *testing.T, s *Server, id string) *http.Response {
	t.Helper()
	return send(t, s, http.MethodGet, "/v1/documents/"+id+":watch", "")
}

func TestAWatchedDocumentComesAsEvents(t *testing.T) {
	s, d := withDocuments(t, nil)
	response := watchOf(t, s, "d1")
	go func() {
		d.watch <- documentsv1.DocumentState_DOCUMENT_STATE_PARSING
		d.watch <- documentsv1.DocumentState_DOCUMENT_STATE_READY
		close(d.watch)
	}()
	content, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	text := string(content)
	if err != nil || response.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%v %v", err, response.Header)
	}
	if strings.Count(text, "event: document\n") != 2 || !strings.HasSuffix(text, "event: done\ndata: {}\n\n") ||
		!strings.Contains(text, `"state":"DOCUMENT_STATE_PARSING"`) {
		t.Error(text)
	}
}

func TestAWatchThatEndsEarlyIsNotDone(t *testing.T) {
	s, d := withDocuments(t, nil)
	response := watchOf(t, s, "d1")
	d.watch <- documentsv1.DocumentState_DOCUMENT_STATE_PARSING
	close(d.watch)
	content, _ := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if strings.Contains(string(content), "event: done") || !strings.Contains(string(content), ": interrupted") {
		t.Error(string(content))
	}
}

func TestAWatchOfNothingIsAnError(t *testing.T) {
	s, _ := withDocuments(t, nil)
	response := watchOf(t, s, "missing")
	defer response.Body.Close()
	if response.StatusCode != http.StatusNotFound {
		t.Error(response.Status)
	}
}

func TestAClientThatGoesEndsItsWatch(t *testing.T) {
	s, d := withDocuments(t, nil)
	response := watchOf(t, s, "d1")
	d.watch <- documentsv1.DocumentState_DOCUMENT_STATE_PARSING
	_ = response.Body.Close()
	select {
	case <-d.ended:
	case <-time.After(patience):
		t.Fatal("the watch goes on")
	}
}
