package sse

import (
	"strconv"
	"strings"
	"unicode/utf8"

	gatewayv1 "bos/rest/gen/bos/gateway/v1"
)

// cursor is a position in a run: the last event, and the number of characters of the answer since the
// last answer_started. Written "SEQUENCE", or "SEQUENCE.OFFSET" with text.
type cursor struct{ sequence, offset int64 }

func (c cursor) String() string {
	text := strconv.FormatInt(c.sequence, 10)
	if c.offset > 0 {
		text += "." + strconv.FormatInt(c.offset, 10)
	}
	return text
}

// parseCursor is the reverse of String.
func parseCursor(text string) (c cursor, ok bool) {
	sequence, offset, behind := strings.Cut(text, ".")
	if c.sequence, ok = parseCount(sequence); ok && behind {
		c.offset, ok = parseCount(offset)
	}
	return c, ok
}

// parseCount parses an unsigned integer.
func parseCount(text string) (int64, bool) {
	number, err := strconv.ParseUint(text, 10, 63)
	return int64(number), err == nil
}

func (c cursor) before(other cursor) bool {
	return c.sequence < other.sequence ||
		c.sequence == other.sequence && c.offset < other.offset
}

// take advances the cursor past an event; false if it was seen before. Text that was seen in part is
// reduced to the rest.
func (c *cursor) take(event *gatewayv1.RunEvent) bool {
	piece := event.GetAnswerDelta()
	if piece == nil {
		if event.GetSequence() <= c.sequence {
			return false
		}
		if event.GetAnswerStarted() != nil {
			c.offset = 0
		}
		c.sequence = event.GetSequence()
		return true
	}
	known := c.offset - piece.GetOffset()
	length := int64(utf8.RuneCountInString(piece.GetText()))
	if event.GetSequence() < c.sequence || known >= length {
		return false
	}
	if known > 0 {
		piece.Text = string([]rune(piece.GetText())[known:])
		piece.Offset = c.offset
	}
	c.sequence = event.GetSequence()
	c.offset = piece.GetOffset() + int64(utf8.RuneCountInString(piece.GetText()))
	return true
}
