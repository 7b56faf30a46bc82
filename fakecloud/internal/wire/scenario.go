package wire

import (
	"fmt"
	"os"
	"strings"
)

// ScenarioStart is the body of POST /scenarios.
type ScenarioStart struct {
	// Scenario is the name of a built-in scenario, with =value@value if Values is empty. With File, it is a name for errors.
	Scenario string `json:"scenario"`
	Values   string `json:"values,omitempty"`
	// File is the text of a scenario file.
	File string `json:"file,omitempty"`
}

// SplitScenario splits name=values.
func SplitScenario(text string) ScenarioStart {
	name, values, _ := strings.Cut(text, "=")
	return ScenarioStart{Scenario: name, Values: values}
}

// ReadScenario is SplitScenario, and reads the file if the name is a path: it has a slash, or ends with .yaml.
func ReadScenario(text string) (ScenarioStart, error) {
	s := SplitScenario(text)
	if !strings.ContainsAny(s.Scenario, `/\\`) && !strings.HasSuffix(s.Scenario, ".yaml") {
		return s, nil
	}
	file, err := os.ReadFile(s.Scenario)
	if err != nil {
		return s, fmt.Errorf("scenario: %w", err)
	}
	if len(file) == 0 {
		return s, fmt.Errorf("scenario: %s: is empty; it must have name, description and changes", s.Scenario)
	}
	s.File = string(file)
	return s, nil
}
