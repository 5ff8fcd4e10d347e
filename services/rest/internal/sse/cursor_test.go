package sse

import (
	"strings"
	"testing"

	gatewayv1 "bos/rest/gen/bos/gateway/v1"
	"bos/rest/internal/codec"
)

func TestCursorsRoundTrip(t *testing.T) {
	for text, want := range map[string]cursor{
		"0": {}, "7": {7, 0}, "7.120": {7, 120}, "9223372036854775807.1": {1<<63 - 1, 1},
	} {
		got, ok := parseCursor(text)
		if !ok || got != want || got.String() != text {
			t.Errorf("%s: %v %t", text, got, ok)
		}
	}
	for _, text := range []string{"", "x", "-1", "+1", "1.", ".1", "1.-1", "1.2.3", "1e3", " 1",
		"9223372036854775808", "1.99999999999999999999"} {
		if got, ok := parseCursor(text); ok {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func piece(sequence, offset int64, text string) *gatewayv1.RunEvent {
	return &gatewayv1.RunEvent{RunId: "r1", Sequence: sequence, Event: &gatewayv1.RunEvent_AnswerDelta{
		AnswerDelta: &gatewayv1.AnswerDeltaEvent{Text: text, Attempt: 1, Offset: offset},
	}}
}

func started(sequence int64, attempt int32) *gatewayv1.RunEvent {
	return &gatewayv1.RunEvent{RunId: "r1", Sequence: sequence, Event: &gatewayv1.RunEvent_AnswerStarted{
		AnswerStarted: &gatewayv1.AnswerStartedEvent{Attempt: attempt},
	}}
}

func finishedWith(answer string) *gatewayv1.RunEvent {
	return &gatewayv1.RunEvent{RunId: "r1", Sequence: 90, Event: &gatewayv1.RunEvent_RunFinished{
		RunFinished: &gatewayv1.RunFinishedEvent{
			Response: &gatewayv1.OrchestratorResponse{Answer: answer},
		},
	}}
}

func TestCursorTakesEachEventOnce(t *testing.T) {
	at := cursor{3, 0}
	for _, one := range []struct {
		event *gatewayv1.RunEvent
		taken bool
		text  string
		at    string
	}{
		{started(3, 1), false, "", "3"},
		{started(4, 1), true, "", "4"},
		{piece(4, 0, "☃ne "), true, "☃ne ", "4.4"},
		{piece(4, 0, "☃ne "), false, "", "4.4"},
		{piece(4, 1, "ne two "), true, "two ", "4.8"},
		{piece(6, 8, "three"), true, "three", "6.13"}, // behind an event that is not shown
		{piece(4, 13, "late"), false, "", "6.13"},
		{started(7, 2), true, "", "7"},
		{piece(7, 0, "anew"), true, "anew", "7.4"},
	} {
		taken := at.take(one.event)
		if taken != one.taken || at.String() != one.at ||
			taken && one.event.GetAnswerDelta().GetText() != one.text {
			t.Errorf("%v: %t at %s", one.event, taken, at)
		}
	}
}

func TestSourceNamesSendTheRestOfAnAnswer(t *testing.T) {
	for name, one := range map[string]struct {
		events []*gatewayv1.RunEvent
		answer string
		rest   string
	}{
		"nothing was sent":       {nil, "All.", `"text":"All."`},
		"a part was sent":        {[]*gatewayv1.RunEvent{piece(4, 0, "☃l")}, "☃ll.", `"offset":"2"`},
		"all was sent":           {[]*gatewayv1.RunEvent{piece(4, 0, "All.")}, "All.", ""},
		"something else was":     {[]*gatewayv1.RunEvent{piece(4, 0, "Al ")}, "All.", ""},
		"more than all was sent": {[]*gatewayv1.RunEvent{piece(4, 0, "All. And")}, "All.", ""},
		"what was sent is void": {
			[]*gatewayv1.RunEvent{piece(4, 0, "Al"), started(7, 2)}, "All.", `"text":"All."`,
		},
		"there is no answer": {nil, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			names := sourceNames(codec.Plain)
			for _, event := range one.events {
				if _, err := names(event); err != nil {
					t.Fatal(err)
				}
			}
			got, err := names(finishedWith(one.answer))
			if err != nil || got[len(got)-1].name != doneName {
				t.Fatal(got, err)
			}
			if (one.rest != "") != (len(got) == 2) {
				t.Errorf("%s", got)
			}
			if one.rest != "" && !strings.Contains(string(got[0].data), one.rest) {
				t.Errorf("%s", got[0].data)
			}
		})
	}
}
