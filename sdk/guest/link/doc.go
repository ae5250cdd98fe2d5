// SPDX-License-Identifier: Apache-2.0

// Package link holds a conversation between a host and a guest that outlives the connections which carry it.
//
// Both ends keep what they sent until the other end has acknowledged it, and number it. When a connection is lost, the
// next one begins by saying what had arrived, and the rest is sent again: every message arrives once and in order, or the
// whole conversation ends with an error. On top of it are streams, one for each request, with credit of their own: a
// stream whose reader stands still holds up no other and takes no more memory than its window.
//
// Over a unix socket of one machine a guest can give the host an open file along with a message. It is part of the
// message: sent again after a cut, and missing where it could not be taken, see [Message.File].
//
// # Who may speak
//
// The host opens each connection with a challenge. Both ends prove that they know the key, the guest first; the proof
// covers everything that was said before it. Until the host has proved itself nothing is served and the conversation that
// goes on is not touched. A host that proves itself with the conversation's id goes on with it; one with another id takes
// over, and the older conversation ends.
//
// A host that reaches the guest over a stream which others carry may knock, see [Knock]: the guest calls it then, where
// both see the same socket, and the conversation goes the short way. A knock proves nothing and need not: what is called
// has to know the key like everyone.
//
// # What must not happen here
//
// The goroutine that reads a connection never waits for a reader of a stream, a writer or a lock that is held while
// something waits. That is what keeps acknowledgements and credit flowing.
//
// Size: the conversation, its streams and the descriptors that it passes are one state machine under one lock.
package link

import (
	"time"

	"github.com/berth-dev/berth/sdk/guest/frame"
)

// The protocol versions that this package speaks.
const (
	minVersion = 2
	maxVersion = 2
)

const (
	// Chunk is the most data that one message carries.
	Chunk = 256 << 10
	// pooled is the least for which a buffer of a whole Chunk is taken.
	pooled = Chunk / 4

	// window is how much a stream may send before its reader has taken something.
	window = 1 << 20
	// maxUnacknowledged bounds what one end keeps for sending again, over all streams.
	maxUnacknowledged = 4 << 20
	// ackBytes and ackFrames say how much may arrive before it is acknowledged.
	ackBytes  = 1 << 20
	ackFrames = 32
	// maxStreams bounds the requests of one conversation.
	maxStreams = 4096
	// minKey is the shortest key.
	minKey = 16
	// writeBuffer is asked of the kernel, which gives less.
	writeBuffer = 1 << 20

	handshakeTimeout = 10 * time.Second
	// MaxSilence is for how long a connection may be silent until it is taken as lost, unless the guest says less. A host
	// shows three times within the silence that it is there.
	MaxSilence = 45 * time.Second
)

// The types of frames. Those from typeOpen on are numbered, kept and sent again.
const (
	typeHello     frame.Type = 1
	typeChallenge frame.Type = 2
	typeProof     frame.Type = 3
	typeWelcome   frame.Type = 4
	typeRefused   frame.Type = 5
	typeKnock     frame.Type = 6

	typeAck  frame.Type = frame.FirstSealed
	typePing frame.Type = 9
	typePong frame.Type = 10
	typeBye  frame.Type = 11

	typeOpen    frame.Type = 16
	typeData    frame.Type = 17
	typeControl frame.Type = 18
	typeCredit  frame.Type = 19
	typeEnd     frame.Type = 20
	typeCancel  frame.Type = 21
	typeFile    frame.Type = 22 // a control message with an open file beside it
)
