// SPDX-License-Identifier: Apache-2.0

package link

import "os"

// discard closes a file that nobody wants, without waiting for it.
func discard(f *os.File) {
	if f != nil {
		go f.Close()
	}
}

// passing is a file on its way to the host.
type passing struct {
	file *os.File
	gone chan struct{} // closed when the file is
}

// discard closes the file, without waiting for it. It is called once.
func (p *passing) discard() {
	if p != nil {
		go func() {
			p.file.Close()
			close(p.gone)
		}()
	}
}
