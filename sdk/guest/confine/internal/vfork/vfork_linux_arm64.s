// SPDX-License-Identifier: Apache-2.0

#include "textflag.h"

// func spawn(nr, a, b uintptr, calls *call, n uintptr) (pid uintptr)
TEXT ·spawn(SB), NOSPLIT|NOFRAME, $0-48
	MOVD nr+0(FP), R8
	MOVD a+8(FP), R0
	MOVD b+16(FP), R1
	MOVD calls+24(FP), R10
	MOVD n+32(FP), R11
	MOVD ZR, R2
	MOVD ZR, R3
	MOVD ZR, R4
	SVC
	CBNZ R0, parent

	// The child. It lives on the parent's stack and writes nothing to it.
next:
	CBZ R11, end
	MOVD 0(R10), R8
	MOVD 8(R10), R0
	MOVD 16(R10), R1
	MOVD 24(R10), R2
	MOVD 32(R10), R3
	MOVD 40(R10), R4
	SVC
	MOVD R0, 48(R10)
	ADD $56, R10
	SUB $1, R11
	CMN $4095, R0
	BCC next
end:
	MOVD $1, R0
	MOVD $94, R8 // exit_group
	SVC
	B end

parent:
	MOVD R0, pid+40(FP)
	RET
