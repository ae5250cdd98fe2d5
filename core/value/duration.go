// SPDX-License-Identifier: Apache-2.0

package value

import "time"

// Duration is a time for people: milliseconds below a second, tenths below a minute, then whole seconds.
func Duration(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	default:
		return d.Round(time.Second).String()
	}
}
