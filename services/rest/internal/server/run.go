package server

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	gatewayv1 "bos/rest/gen/bos/gateway/v1"
	"bos/rest/internal/apierror"
	"bos/rest/internal/codec"
)

const runPath = "/v1/runs/{run_id}"

// registerRun serves GetRun with an entity tag, by which a caller waits for what it does not know yet.
func registerRun(mux *runtime.ServeMux, client gatewayv1.OrchestratorServiceClient) error {
	return mux.HandlePath(http.MethodGet, runPath,
		func(w http.ResponseWriter, r *http.Request, parameters map[string]string) {
			ctx, err := runtime.AnnotateContext(r.Context(), mux, r,
				gatewayv1.OrchestratorService_GetRun_FullMethodName,
				runtime.WithHTTPPathPattern(runPath))
			if err != nil {
				apierror.Write(w, err)
				return
			}
			known := tagsOf(r.Header.Values("If-None-Match"))
			request, err := runRequest(parameters["run_id"], r.URL.Query(), known)
			if err != nil {
				apierror.Write(w, err)
				return
			}
			answer, err := client.GetRun(ctx, request)
			if err != nil {
				apierror.Write(w, err)
				return
			}
			tag := runTag(answer.GetRun(), codec.FormOf(ctx))
			w.Header().Set("ETag", tag)
			if slices.Contains(known, tag) || slices.Contains(known, "*") {
				w.WriteHeader(http.StatusNotModified)
				return
			}
			codec.Write(w, r, answer.GetRun())
		})
}

// runRequest reads the query; of what the caller knows, the latest state of the run counts.
func runRequest(runID string, query url.Values, known []string) (*gatewayv1.GetRunRequest, error) {
	request := &gatewayv1.GetRunRequest{RunId: runID}
	if text := query.Get("wait"); text != "" {
		request.Wait = &durationpb.Duration{}
		if protojson.Unmarshal([]byte(strconv.Quote(text)), request.Wait) != nil {
			return nil, apierror.Field("wait", `must be seconds with an "s", such as 30s`)
		}
	}
	if text := query.Get("after_sequence"); text != "" {
		sequence, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, apierror.Field("after_sequence", "must be a whole number")
		}
		request.AfterSequence = &sequence
		return request, nil
	}
	for _, tag := range known {
		sequence, is := sequenceOf(tag, runID)
		if is && sequence >= request.GetAfterSequence() {
			request.AfterSequence = &sequence
		}
	}
	return request, nil
}

var tagEndings = map[codec.Form]string{
	codec.Plain: "", codec.PlainObjects: ".objects", codec.Protobuf: ".protobuf",
}

// runTag names a state of a run in one form: its log only grows, and the run follows from it.
func runTag(run *gatewayv1.Run, form codec.Form) string {
	sequence := strconv.FormatInt(run.GetLastSequence(), 10)
	return `"` + run.GetRunId() + "." + sequence + tagEndings[form] + `"`
}

// sequenceOf returns the sequence that a tag of the run names, in whichever form.
func sequenceOf(tag, runID string) (int64, bool) {
	rest, of := strings.CutPrefix(tag, `"`+runID+".")
	digits := strings.TrimRight(rest, `"`)
	digits, _, _ = strings.Cut(digits, ".")
	sequence, err := strconv.ParseInt(digits, 10, 64)
	return sequence, of && err == nil && sequence >= 0
}

// tagsOf lists the entity tags of a header; weak ones count as strong ones do.
func tagsOf(values []string) []string {
	var tags []string
	for tag := range strings.SplitSeq(strings.Join(values, ","), ",") {
		if tag = strings.TrimPrefix(strings.TrimSpace(tag), "W/"); tag != "" {
			tags = append(tags, tag)
		}
	}
	return tags
}

// submitted answers a question that was submitted with 202, and says where its run is.
func submitted(ctx context.Context, w http.ResponseWriter, message proto.Message) error {
	method, _ := runtime.RPCMethod(ctx)
	if method != gatewayv1.OrchestratorService_SubmitRun_FullMethodName {
		return nil
	}
	if answer, is := message.(interface{ GetRun() *gatewayv1.Run }); is {
		w.Header().Set("Location", "/v1/runs/"+url.PathEscape(answer.GetRun().GetRunId()))
		w.WriteHeader(http.StatusAccepted)
	}
	return nil
}
