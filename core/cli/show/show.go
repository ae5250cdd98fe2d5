// SPDX-License-Identifier: Apache-2.0

// Package show shows a run's events: to a person on a terminal or in a log, and as JSON lines for programs.
package show

import (
	"encoding/json"
	"io"

	"github.com/berth-dev/berth/core/event"
)

// Shower gets every event of a run, in order, from one goroutine.
type Shower interface {
	Event(ev event.Event)
	// Close clears what is only for the moment.
	Close()
}

// Holder is a Shower that can be kept quiet while a person is asked something.
type Holder interface {
	// Hold writes a text, and what events bring only when it is released.
	Hold(text string) (release func())
}

// JSON writes each event as one line.
func JSON(w io.Writer) Shower { return jsonShower{json.NewEncoder(w)} }

type jsonShower struct{ enc *json.Encoder }

func (s jsonShower) Event(ev event.Event) { _ = s.enc.Encode(ev) } // who does not read does not see

func (jsonShower) Close() {}
