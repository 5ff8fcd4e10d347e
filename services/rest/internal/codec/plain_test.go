package codec

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	agentv1 "bos/rest/gen/bos/agent/v1"
	commonv1 "bos/rest/gen/bos/common/v1"
	_ "bos/rest/gen/bos/gateway/v1"
)

// goldenCases are those that the Python client has to write in the same way.
const goldenCases = "../../../../tests/contracts/plain_json.json"

type goldenCase struct {
	Name    string          `json:"name"`
	Type    string          `json:"type"`
	Message json.RawMessage `json:"message"`
	Arrays  any             `json:"arrays"`
	Objects any             `json:"objects"`
}

func (c goldenCase) message(t *testing.T) proto.Message {
	t.Helper()
	kind, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName(c.Type))
	if err != nil {
		t.Fatal(err)
	}
	message := kind.New().Interface()
	if err := protojson.Unmarshal(c.Message, message); err != nil {
		t.Fatal(err)
	}
	return message
}

func parsed(t *testing.T, form Form, message proto.Message) any {
	t.Helper()
	text, err := form.JSON(message)
	if err != nil {
		t.Fatal(err)
	}
	var value any
	if err := json.Unmarshal(text, &value); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return value
}

func TestPlainFormIsThatOfTheGoldenCases(t *testing.T) {
	text, err := os.ReadFile(goldenCases)
	if err != nil {
		t.Fatal(err)
	}
	var cases []goldenCase
	if err := json.Unmarshal(text, &cases); err != nil || len(cases) == 0 {
		t.Fatal(len(cases), err)
	}
	for _, one := range cases {
		t.Run(one.Name, func(t *testing.T) {
			message := one.message(t)
			if got := parsed(t, Plain, message); !reflect.DeepEqual(got, one.Arrays) {
				t.Errorf("arrays: %v", got)
			}
			want := one.Objects
			if want == nil {
				want = one.Arrays // without rows there is no difference
			}
			if got := parsed(t, PlainObjects, message); !reflect.DeepEqual(got, want) {
				t.Errorf("objects: %v", got)
			}
			back := message.ProtoReflect().New().Interface()
			own, err := Protobuf.JSON(message)
			if err != nil || protojson.Unmarshal(own, back) != nil || !proto.Equal(back, message) {
				t.Errorf("protobuf's own form loses something: %s %v", own, err)
			}
		})
	}
}

func TestEnumValueOfANewerVersionIsItsNumber(t *testing.T) {
	column := &commonv1.Column{Name: "n", Type: 77}
	if got, err := Plain.JSON(column); err != nil || string(got) != `{"name":"n","type":77,"unit":""}` {
		t.Errorf("%s %v", got, err)
	}
}

func TestPlainFormIsOneLine(t *testing.T) {
	value := &commonv1.Value{Kind: &commonv1.Value_StringValue{StringValue: "a\nb\r\u2028c"}}
	got, err := Plain.JSON(value)
	if err != nil || strings.ContainsAny(string(got), "\n\r\u2028") {
		t.Errorf("%q %v", got, err)
	}
}

func TestTimesThatJSONCannotSayAreErrors(t *testing.T) {
	for _, message := range []proto.Message{
		&agentv1.ProposedAction{ApprovalTimeout: &durationpb.Duration{Seconds: 1 << 62}},
		&commonv1.Value{Kind: &commonv1.Value_TimestampValue{
			TimestampValue: &timestamppb.Timestamp{Seconds: 1 << 62},
		}},
	} {
		for _, form := range []Form{Plain, PlainObjects, Protobuf} {
			if got, err := form.JSON(message); err == nil {
				t.Errorf("%d: %s", form, got)
			}
		}
	}
}
