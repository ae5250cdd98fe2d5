// SPDX-License-Identifier: Apache-2.0

#include "textflag.h"

// func spawn(nr, a, b uintptr, calls *call, n uintptr) (pid uintptr)
TEXT ·spawn(SB), NOSPLIT|NOFRAME, $0-48
	MOVQ nr+0(FP), AX
	MOVQ a+8(FP), DI
	MOVQ b+16(FP), SI
	MOVQ calls+24(FP), R12
	MOVQ n+32(FP), R13
	XORL DX, DX
	XORL R10, R10
	XORL R8, R8
	SYSCALL
	TESTQ AX, AX
	JNZ parent

	// The child. It lives on the parent's stack and writes nothing to it.
next:
	TESTQ R13, R13
	JZ end
	MOVQ 0(R12), AX
	MOVQ 8(R12), DI
	MOVQ 16(R12), SI
	MOVQ 24(R12), DX
	MOVQ 32(R12), R10
	MOVQ 40(R12), R8
	SYSCALL
	MOVQ AX, 48(R12)
	ADDQ $56, R12
	DECQ R13
	CMPQ AX, $-4095
	JCS next
end:
	MOVL $1, DI
	MOVL $231, AX // exit_group
	SYSCALL
	JMP end

parent:
	MOVQ AX, pid+40(FP)
	RET
