package apidoc

import "google.golang.org/protobuf/reflect/protoreflect"

const (
	submitRun = "SubmitRun"
	lookUpRun = "GetRun"
)

// succeeded adds the response of a call that went well.
func succeeded(responses object, method protoreflect.MethodDescriptor, output object) {
	response := object{"description": "Done.", "content": inEachForm(output)}
	header := func(about string) object {
		return object{"description": about, "schema": object{"type": "string"}}
	}
	switch string(method.Name()) {
	case submitRun:
		response["description"] = "Stored; the run goes on by itself."
		response["headers"] = object{"Location": header("Where the run can be looked up.")}
		responses["202"] = response
		return
	case lookUpRun:
		response["headers"] = object{"ETag": header("The run as it is now, for `If-None-Match`.")}
		responses["304"] = object{
			"description": "It is as the caller knows it by `If-None-Match`, after the wait if there is one.",
		}
	}
	responses["200"] = response
}

// knownRun is the header by which a caller says what it knows of a run.
func knownRun() object {
	return object{
		"name": "If-None-Match", "in": "header",
		"description": "The `ETag` of the run as it is known. With `wait` the answer comes as soon as " +
			"there is anything behind it.",
		"schema": object{"type": "string", "maxLength": 256},
	}
}
