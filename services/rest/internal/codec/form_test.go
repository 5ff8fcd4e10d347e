package codec

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// chosen returns the form that a request gets, and the request as the mux sees it; nil if it was refused.
func chosen(target string, accepted ...string) (Form, *http.Request, *httptest.ResponseRecorder) {
	request := httptest.NewRequest(http.MethodGet, target, nil)
	for _, one := range accepted {
		request.Header.Add("Accept", one)
	}
	var seen *http.Request
	recorder := httptest.NewRecorder()
	Choose(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		seen = r
	})).ServeHTTP(recorder, request)
	if seen == nil {
		return 0, nil, recorder
	}
	return FormOf(seen.Context()), seen, recorder
}

func TestFormFollowsAcceptAndRows(t *testing.T) {
	for _, one := range []struct {
		target, accept string
		want           Form
	}{
		{"/v1/runs/r1", "", Plain},
		{"/v1/runs/r1", "*/*", Plain},
		{"/v1/runs/r1", "text/event-stream", Plain},
		{"/v1/runs/r1", "application/json", Plain},
		{"/v1/runs/r1?rows=arrays", "", Plain},
		{"/v1/runs/r1?rows=objects", "application/json", PlainObjects},
		{"/v1/runs/r1", "application/protobuf+json", Protobuf},
		{"/v1/runs/r1", "Application/Protobuf+JSON ; charset=utf-8", Protobuf},
		{"/v1/runs/r1", "text/event-stream, application/protobuf+json", Protobuf},
		{"/v1/runs/r1", "application/json;q=0.5, application/protobuf+json;q=0.9", Protobuf},
		{"/v1/runs/r1", "application/json, application/protobuf+json;q=0.9", Plain},
		{"/v1/runs/r1", "application/protobuf+json;q=0", Plain},
		{"/v1/runs/r1", "application/protobuf+json;q=x", Plain},
		{"/v1/runs/r1", ";;;,application", Plain},
	} {
		form, seen, recorder := chosen(one.target, one.accept)
		if seen == nil || form != one.want || seen.Header.Get("Accept") != one.want.Key() {
			t.Errorf("%+v: %d %v", one, form, seen)
		}
		if recorder.Header().Get("Vary") != "Accept" {
			t.Errorf("%+v: %v", one, recorder.Header())
		}
	}
}

func TestRowsIsTakenOutOfTheQuery(t *testing.T) {
	_, seen, _ := chosen("/v1/runs?rows=objects&page_size=2")
	if seen.URL.RawQuery != "page_size=2" {
		t.Error(seen.URL)
	}
	_, seen, _ = chosen("/v1/runs?page_token=a%2Fb+c")
	if seen.URL.RawQuery != "page_token=a%2Fb+c" {
		t.Error(seen.URL)
	}
}

func TestRowsOfProtobufsOwnFormAreRefused(t *testing.T) {
	_, seen, recorder := chosen("/v1/runs/r1?rows=objects", "application/protobuf+json")
	if seen != nil || recorder.Code != http.StatusBadRequest {
		t.Error(recorder.Code, recorder.Body)
	}
}
