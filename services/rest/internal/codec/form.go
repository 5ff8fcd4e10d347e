package codec

import (
	"context"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"bos/rest/internal/apierror"
)

const (
	// JSONType is the media type of plain JSON.
	JSONType = "application/json"
	// ProtobufType is the media type of protobuf's own JSON.
	ProtobufType = "application/protobuf+json"

	rowsParameter = "rows"
	rowsObjects   = "objects"
)

// Form is one of the ways in which answers and events are written as JSON.
type Form int

const (
	// Plain has typed values as the JSON that they stand for, and rows as arrays.
	Plain Form = iota
	// PlainObjects is Plain with rows as objects.
	PlainObjects
	// Protobuf is protobuf's own JSON, which keeps the type of every value.
	Protobuf
)

// JSON encodes a message with the field names of its schema; empty lists, numbers and texts included.
func (f Form) JSON(message proto.Message) ([]byte, error) {
	if f == Protobuf {
		return write.Marshal(message)
	}
	return plainJSON(message, f == PlainObjects)
}

// ContentType is the media type of an answer.
func (f Form) ContentType() string {
	if f == Protobuf {
		return ProtobufType
	}
	return JSONType
}

// Key distinguishes the marshalers of the mux; Choose leaves it in the request as Accept.
func (f Form) Key() string {
	if f == PlainObjects {
		return JSONType + ";" + rowsParameter + "=" + rowsObjects
	}
	return f.ContentType()
}

// Write answers a request with a message, in the form that it wants.
func Write(w http.ResponseWriter, r *http.Request, message proto.Message) {
	form := FormOf(r.Context())
	content, err := form.JSON(message)
	if err != nil {
		apierror.Write(w, err)
		return
	}
	w.Header().Set("Content-Type", form.ContentType())
	_, _ = w.Write(content)
}

type formKey struct{}

// FormOf returns the form that the request wants.
func FormOf(ctx context.Context) Form {
	form, _ := ctx.Value(formKey{}).(Form)
	return form
}

// Choose finds out which form each request wants, by Accept and the parameter rows.
func Choose(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Vary", "Accept")
		query := r.URL.Query()
		form := Plain
		if query.Get(rowsParameter) == rowsObjects {
			form = PlainObjects
		}
		if wantsProtobuf(r.Header.Values("Accept")) {
			if query.Has(rowsParameter) {
				apierror.Write(w, apierror.Field(rowsParameter,
					"shapes plain JSON; leave it out with "+ProtobufType))
				return
			}
			form = Protobuf
		}
		chosen := r.Clone(context.WithValue(r.Context(), formKey{}, form))
		chosen.Header.Set("Accept", form.Key())
		if query.Has(rowsParameter) { // no field of any request
			query.Del(rowsParameter)
			chosen.URL.RawQuery = query.Encode()
		}
		next.ServeHTTP(w, chosen)
	})
}

// wantsProtobuf reports whether the caller names protobuf's own JSON, and does not prefer plain JSON.
func wantsProtobuf(accepted []string) bool {
	var own, plain float64
	for entry := range strings.SplitSeq(strings.Join(accepted, ","), ",") {
		kind, parameters, err := mime.ParseMediaType(entry)
		if err != nil {
			continue
		}
		quality := 1.0
		if given, named := parameters["q"]; named {
			if quality, err = strconv.ParseFloat(given, 64); err != nil {
				continue
			}
		}
		switch kind {
		case ProtobufType:
			own = max(own, quality)
		case JSONType:
			plain = max(plain, quality)
		}
	}
	return own > 0 && own >= plain
}
