package settings

import (
	"fmt"
	"reflect"
	"strings"
)

// Reference is the table of all variables, in Markdown.
func Reference() string {
	lines := []string{"| Variable | Default | Meaning |", "|---|---|---|"}
	fields := reflect.TypeFor[Settings]()
	for i := range fields.NumField() {
		tag := fields.Field(i).Tag
		standard := "unset"
		if text, given := tag.Lookup("envDefault"); given {
			standard = "`" + text + "`"
		}
		lines = append(lines,
			fmt.Sprintf("| `%s` | %s | %s |", tag.Get("env"), standard, tag.Get("about")))
	}
	return strings.Join(lines, "\n") + "\n"
}

// variable is the environment variable of a field.
func variable(field string) string {
	found, known := reflect.TypeFor[Settings]().FieldByName(field)
	if !known {
		return field
	}
	return found.Tag.Get("env")
}
