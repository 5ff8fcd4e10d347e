package apidoc

import "strings"

const introduction = `Questions in, runs and cited answers out.

Fields have the names of the schemas in protos/. 64-bit integers and decimals are strings, times are
RFC 3339 in UTC, durations are seconds with an "s". Unknown fields are refused. Every error has one shape.

Values are plain JSON, rows of tables arrays in the order of the columns, which say their types;
` + "`rows=objects`" + ` makes objects of them. With ` + "`Accept: application/protobuf+json`" + ` answers
and events are protobuf's own JSON, in which every value says its type.

Streams are server-sent events: ` + "`id`" + ` is where to go on (the event's
sequence, and behind a dot the characters of the answer so far), ` + "`event`" + ` its kind,
` + "`data`" + ` its JSON. A comment comes every 15 seconds while nothing happens. The last event is
` + "`done`" + `, or ` + "`error`" + ` with the error's JSON. A stream that ends otherwise was
interrupted: go on with ` + "`GET /v1/runs/{run_id}:watch`" + ` and ` + "`Last-Event-ID`" + `, never
with a second POST. Closing a stream does not cancel the run.`

const (
	tagRuns  = "Runs"
	tagOther = "Other paths"
)

var tagOrder = []string{tagRuns, "Approvals", "Webhooks", "Plans", "Agents", "Documents", "Files", "Operator", tagBrowser,
	tagOther, "Operation"}

var tagTexts = map[string]string{
	tagRuns:     "Ask, follow, look up and cancel.",
	"Approvals": "What waits for a person, and the decision.",
	"Webhooks":  "Have events posted to your own addresses.",
	"Plans":     "What would be done.",
	"Agents":    "Who does it.",
	"Documents": "Upload, follow, search and delete.",
	"Files":     "The workspace: list, download, upload and delete.",
	"Operator":  "Runs of all users, for operators: how they stand, not what is in them.",
	tagBrowser:  "How a browser is signed in: by a cookie, whose tokens no page ever sees.",
	tagOther:    "The same operations under shorter paths; streams there use their own event names.",
	"Operation": "For load balancers and operators.",
}

// tagOf groups by the collection in the path; bindings beside the first are one group.
func tagOf(path, alias string) string {
	parts := strings.FieldsFunc(path, func(r rune) bool { return r == '/' || r == ':' })
	if alias != "" || len(parts) < 2 || parts[0] != "v1" {
		return tagOther
	}
	return strings.ToUpper(parts[1][:1]) + parts[1][1:]
}

var errorTexts = map[int]string{
	400: "The request is wrong; the details name the field.",
	401: "No valid API key.",
	403: "Not allowed: host, origin or caller.",
	404: "No such thing, or not one of yours.",
	405: "The path has other methods.",
	408: "The body did not arrive in time.",
	409: "The request id belongs to another request, or another decision was stored first.",
	413: "The body is too large.",
	415: "The body is not JSON, or not a form where a file is uploaded.",
	429: "A limit is reached.",
	431: "The headers are too large.",
	499: "The call was cancelled.",
	500: "A defect; it was logged.",
	501: "Not offered.",
	503: "The gateway is not there at the moment.",
	504: "The time for the call ran out; a run goes on.",
}

var requestExamples = map[string]any{
	"Ask": questions, "AskStream": questions, "PlanQuestion": questions,
	"RespondApproval": object{
		"approve": object{
			"summary": "Do exactly what was proposed",
			"value":   object{"decision": "APPROVAL_DECISION_APPROVE"},
		},
		"deny": object{
			"summary": "Do nothing", "value": object{"decision": "APPROVAL_DECISION_DENY"},
		},
	},
	"CancelRun": object{"reason": object{
		"summary": "With a reason", "value": object{"reason": "Asked by mistake"},
	}},
}

var questions = object{
	"data": object{
		"summary": "About the sample company, on its own day",
		"value": object{
			"question": "Which five customers brought the most revenue last quarter, " +
				"and what share of the total is that?",
			"context": object{
				"current_date": "2026-06-15", "current_datetime_utc": "2026-06-15T12:00:00+00:00",
			},
		},
	},
	"computation": object{
		"summary": "Arithmetic, with the trace",
		"value": object{
			"question": "How many days are there between 17 January 2026 and 15 June 2026?",
			"trace":    true,
		},
	},
}

const streamText = "Server-sent events; `data` of each is a `RunEvent`, `event` is the name of the " +
	"field that is set: `run_accepted`, `planned`, `step_started`, `step_progress`, " +
	"`step_finished`, `approval_requested`, `approval_resolved`, `revision_started`, " +
	"`answer_started`, `answer_delta`, `run_resumed`, `cancel_requested`, `run_finished`. Then " +
	"`done` with the run's id and status."

const otherStreamText = "Server-sent events. `token` is a piece of the answer, `hitl_required`, " +
	"`hitl_approved`, `hitl_denied` and `hitl_timeout` are about approvals, `done` has the whole " +
	"`OrchestratorResponse` and is the last. All others are as with `/v1/runs:askStream`."

// fileResponse is the response with a file, which browsers save.
func fileResponse() object {
	header := func(about string) object {
		return object{"description": about, "schema": object{"type": "string"}}
	}
	return object{
		"description": "The file. Media types that browsers could run something of come as bytes.",
		"headers": object{
			"Content-Disposition":    header("Always `attachment`, with the file's name."),
			"X-Content-Type-Options": header("Always `nosniff`."),
		},
		"content": object{"*/*": object{
			"schema": object{"type": "string", "format": "binary"},
		}},
	}
}

const streamSample = "retry: 2000\n\nid: 1\nevent: run_accepted\n" +
	`data: {"run_id":"0199f0a4-7b1e-7c4e-9d8e-3f1f5a3b2c10","sequence":"1"}` + "\n\n"

func reference(schema string) object {
	return object{"$ref": "#/components/schemas/" + schema}
}

// eventSchema describes each event of a stream. OpenAPI does not say of what the schema of a stream is:
// generators of clients take it for that of `data`, tools that check answers for that of the event.
func eventSchema(data ...object) object {
	return object{"anyOf": append(data, reference("ServerSentEvent"))}
}

func serverSentEventSchema() object {
	return object{
		"type":        "object",
		"description": "An event of a stream as it is sent, for tools that read streams in this way.",
		"properties": object{
			"id":    object{"type": "string", "description": "Where to go on behind it."},
			"event": object{"type": "string", "description": "Its name."},
			"data":  object{"type": "string", "description": "Its JSON, on one line."},
			"retry": object{"type": "integer", "description": "Milliseconds."},
		},
	}
}

func streamEndSchema() object {
	return object{
		"type":        "object",
		"description": "`data` of the event `done`: the run has ended.",
		"required":    []string{"run_id", "status"},
		"properties": object{
			"run_id": object{"type": "string", "description": "The run."},
			"status": object{"type": "string", "description": "How it ended, as in `Run.status`."},
		},
	}
}

func streamResponse(alias bool) object {
	text, data := streamText, eventSchema(
		reference("RunEvent"), reference("StreamEnd"), reference("Error"))
	if alias {
		text, data = otherStreamText, object{"type": "object"}
	}
	return object{
		"description": text,
		"headers": object{"X-Accel-Buffering": object{
			"description": "Always `no`: proxies must pass events on at once.",
			"schema":      object{"type": "string"},
		}},
		"content": object{eventsType: object{
			"schema":  data,
			"example": streamSample,
		}},
	}
}

const documentStreamText = "Server-sent events: `document`, whose `data` is the `Document` as it is " +
	"now, at each change; `done`, without data of note, once it is ready or failed. A stream that ends " +
	"otherwise was interrupted, or has lasted as long as it may: begin another one."

const documentSample = "retry: 2000\n\nevent: document\n" +
	`data: {"document_id":"0c5f7f3e-3f0e-4a70-9d53-8d6c0a3f7a10","state":"DOCUMENT_STATE_PARSING"}` +
	"\n\n"

// documentStreamResponse is the changes of a document.
func documentStreamResponse(document object) object {
	response := streamResponse(false)
	response["description"] = documentStreamText
	content := response["content"].(object)[eventsType].(object)
	end := object{"type": "object", "maxProperties": 0, "description": "`data` of the event `done`."}
	content["schema"] = eventSchema(document, end)
	content["example"] = documentSample
	return response
}

func errorSchema() object {
	return object{
		"type":        "object",
		"description": "What went wrong, as google.rpc.Status in the JSON form of HTTP APIs.",
		"required":    []string{"error"},
		"properties": object{"error": object{
			"type":     "object",
			"required": []string{"code", "status", "message", "details"},
			"properties": object{
				"code":    object{"type": "integer", "description": "The HTTP status."},
				"status":  object{"type": "string", "description": "The gRPC code, in words."},
				"message": object{"type": "string", "description": "One sentence for a person."},
				"details": object{
					"type": "array",
					"description": "`google.rpc.ErrorInfo` with a stable `reason`, " +
						"`google.rpc.BadRequest` with the fields, `google.rpc.RetryInfo`.",
					"items": object{
						"type": "object", "required": []string{"@type"},
						"properties": object{"@type": object{"type": "string"}},
					},
				},
			},
		}},
		"example": object{"error": object{
			"code": 400, "status": "INVALID_ARGUMENT",
			"message": "request.question: value length must be at least 1 characters",
			"details": []any{
				object{
					"@type":  "type.googleapis.com/google.rpc.ErrorInfo",
					"reason": "INVALID_ARGUMENT", "domain": "bos",
				},
				object{
					"@type": "type.googleapis.com/google.rpc.BadRequest",
					"field_violations": []any{object{
						"field":       "request.question",
						"description": "value length must be at least 1 characters",
					}},
				},
			},
		}},
	}
}
