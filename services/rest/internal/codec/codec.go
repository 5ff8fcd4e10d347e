// Package codec converts protobuf messages to JSON and back, for all of this service.
package codec

import (
	"errors"
	"io"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

var write = protojson.MarshalOptions{UseProtoNames: true, EmitDefaultValues: true}

// JSON encodes a message with the field names of its schema; empty lists, numbers and texts included.
func JSON(message proto.Message) ([]byte, error) { return write.Marshal(message) }

// Marshaler reads and writes bodies: names of the schemas, unknown fields refused.
type Marshaler struct{ runtime.JSONPb }

// New returns the marshaler of the REST mux.
func New() *Marshaler {
	return &Marshaler{runtime.JSONPb{MarshalOptions: write}}
}

// NewDecoder decodes one value; its errors are safe to show to clients.
func (m *Marshaler) NewDecoder(r io.Reader) runtime.Decoder {
	decoder := m.JSONPb.NewDecoder(r)
	return runtime.DecoderFunc(func(value any) error {
		err := decoder.Decode(value)
		if err == nil || errors.Is(err, io.EOF) {
			return err
		}
		return errors.New(plain(err.Error()))
	})
}

// plain removes the library's prefix and its randomly varied spaces from an error text.
func plain(text string) string {
	text = strings.Join(strings.Fields(strings.ReplaceAll(text, "\u00a0", " ")), " ")
	return strings.TrimSpace(strings.TrimPrefix(text, "proto:"))
}
