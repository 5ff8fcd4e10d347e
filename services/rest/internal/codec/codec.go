// Package codec is how protobuf messages become JSON and back, everywhere in this service.
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

// JSON is a message with the names of its schema; lists, numbers and texts are always there.
func JSON(message proto.Message) ([]byte, error) { return write.Marshal(message) }

// Marshaler reads and writes bodies: names of the schemas, unknown fields refused.
type Marshaler struct{ runtime.JSONPb }

// New returns the marshaler of the REST mux.
func New() *Marshaler {
	return &Marshaler{runtime.JSONPb{MarshalOptions: write}}
}

// NewDecoder reads one value; its errors are fit for the client.
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

// plain drops the library's name, and the spaces it varies so that nobody relies on its texts.
func plain(text string) string {
	text = strings.Join(strings.Fields(strings.ReplaceAll(text, "\u00a0", " ")), " ")
	return strings.TrimSpace(strings.TrimPrefix(text, "proto:"))
}
