// SPDX-License-Identifier: Apache-2.0

package diag

import (
	"fmt"
	"strconv"
	"strings"
)

// Code is the number of a kind of finding. Codes keep their meaning for ever.
type Code uint16

// String is the form that users see and give to `berth explain`.
func (c Code) String() string { return fmt.Sprintf("BERTH%04d", uint16(c)) }

// ParseCode reads "BERTH1101", "berth1101" or "1101".
func ParseCode(s string) (Code, bool) {
	s = strings.TrimPrefix(strings.ToUpper(strings.TrimSpace(s)), "BERTH")
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || len(s) != 4 {
		return 0, false
	}
	return Code(n), true
}

// Syntax.
const (
	Encoding         Code = 1001
	UnexpectedToken  Code = 1002
	NotClosed        Code = 1003
	OneLineBlock     Code = 1004
	JSONSyntax       Code = 1005
	UnreadableSource Code = 1006
)

// Structure.
const (
	UnsupportedArgument Code = 1101
	UnsupportedBlock    Code = 1102
	MissingArgument     Code = 1103
	WrongLabels         Code = 1104
	BlockTooOften       Code = 1105
	DuplicateName       Code = 1106
	Conflicting         Code = 1107
	ExactlyOneOf        Code = 1108
	Deprecated          Code = 1109
	WrongFileKind       Code = 1110
	VersionNotMet       Code = 1111
)

// Names.
const (
	UnknownRoot      Code = 1201
	UnknownName      Code = 1202
	UnknownField     Code = 1203
	RunTimeName      Code = 1204
	Cycle            Code = 1205
	NoSuchBlock      Code = 1210
	ReferenceNeeded  Code = 1211
	WrongReference   Code = 1212
	IndexInReference Code = 1213
	BlockAsValue     Code = 1214
	ExtendsProblem   Code = 1220
	ModuleProblem    Code = 1230
)

// Values.
const (
	WrongType       Code = 1301
	OutOfRange      Code = 1302
	NotOneOf        Code = 1303
	PatternMismatch Code = 1304
	BadDuration     Code = 1305 // or size
	NullNotAllowed  Code = 1306
)

// Functions.
const (
	UnknownFunction   Code = 1401
	FunctionArguments Code = 1402
	FunctionFailed    Code = 1403
	FunctionUntrusted Code = 1404
)

// Drivers.
const (
	UnknownDriver     Code = 1501
	DriverMissing     Code = 1502
	LockMismatch      Code = 1503
	DriverFinding     Code = 1504
	FeatureMissing    Code = 1505
	SchemaUnavailable Code = 1506
)

// Secrets.
const (
	SecretMissing     Code = 1601
	SecretCommand     Code = 1602
	SecretLeak        Code = 1603
	SecretPermissions Code = 1604
)

// Variables.
const (
	VariableUnset       Code = 1701
	VariableUndeclared  Code = 1702
	VariableInvalid     Code = 1703
	VariableConversion  Code = 1704
	DeclarationInValues Code = 1705
)

// The manifest.
const (
	PathNotAllowed       Code = 1801
	DuplicatePath        Code = 1802
	FileAboveEntry       Code = 1803
	SourceMissing        Code = 1804
	OutsideProject       Code = 1805
	UnknownAccount       Code = 1806
	ExposureNotTrusted   Code = 1807
	StrategyNotSupported Code = 1808
	StorageWrong         Code = 1809
)

// Agents.
const (
	TemplateLikeText  Code = 1901
	ToolNameCollision Code = 1902
	ModelCannot       Code = 1903
	UnusedBlock       Code = 1904
	RuleNeverMatches  Code = 1905
	HandoffToItself   Code = 1906
)

// Trust.
const (
	NotUntrusted    Code = 2001
	ForbiddenByHost Code = 2002
)
