// Package codec converts protobuf messages to JSON and back, for all of this service.
package codec

import (
	"bytes"
	"errors"
	"io"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

var write = protojson.MarshalOptions{UseProtoNames: true, EmitDefaultValues: true}

// Marshaler reads and writes bodies: names of the schemas, unknown fields refused.
type Marshaler struct {
	runtime.JSONPb
	form Form
}

// New returns the marshaler of the REST mux for a form.
func New(form Form) *Marshaler {
	return &Marshaler{runtime.JSONPb{MarshalOptions: write}, form}
}

// ContentType is the media type of what Marshal returns.
func (m *Marshaler) ContentType(any) string { return m.form.ContentType() }

// Marshal encodes an answer.
func (m *Marshaler) Marshal(value any) ([]byte, error) {
	if message, is := value.(proto.Message); is {
		return m.form.JSON(message)
	}
	return m.JSONPb.Marshal(value)
}

// NewDecoder decodes one value; its errors are safe to show to clients.
func (m *Marshaler) NewDecoder(r io.Reader) runtime.Decoder {
	var body bytes.Buffer
	decoder := m.JSONPb.NewDecoder(io.TeeReader(r, &body))
	return runtime.DecoderFunc(func(value any) error {
		err := decoder.Decode(value)
		if err == nil || errors.Is(err, io.EOF) {
			return err
		}
		text := plain(err.Error())
		if strings.HasPrefix(text, "syntax error") {
			if wrong := misfit(value, body.Bytes()); wrong != "" {
				text = wrong
			}
		}
		return errors.New(text)
	})
}

// plain removes the library's prefix and its randomly varied spaces from an error text.
func plain(text string) string {
	text = strings.Join(strings.Fields(strings.ReplaceAll(text, "\u00a0", " ")), " ")
	return strings.TrimSpace(strings.TrimPrefix(text, "proto:"))
}
