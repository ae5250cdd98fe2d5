// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	pb "github.com/berth-dev/berth/sdk/proto/berth/driver/v1"
	"github.com/berth-dev/berth/sdk/schema"
)

// fill sets every exported field to something that is not its zero value, so that a field which a conversion forgets
// shows up in a comparison.
type filler struct{ n int }

func (f *filler) fill(v reflect.Value) {
	f.n++
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(time.Unix(int64(f.n)*1000, 123).UTC()))
		return
	case time.Duration:
		v.SetInt(int64(f.n) * int64(time.Millisecond))
		return
	case driver.OrphanPolicy, driver.EventKind, driver.FileType, driver.FileEventKind, schema.Nesting:
		v.SetUint(uint64(1 + f.n%3))
		return
	case schema.Type:
		v.Set(reflect.ValueOf(schema.MapOf(schema.String)))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(fmt.Sprintf("text %d", f.n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(f.n))
	case reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(f.n))
	case reflect.Uint8:
		v.SetUint(uint64(f.n % 200))
	case reflect.Float64:
		v.SetFloat(float64(f.n) + 0.5)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range 2 {
			f.fill(v.Index(i))
		}
	case reflect.Array:
		for i := range v.Len() {
			f.fill(v.Index(i))
		}
	case reflect.Map:
		m := reflect.MakeMap(v.Type())
		k, e := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		f.fill(k)
		f.fill(e)
		m.SetMapIndex(k, e)
		v.Set(m)
	case reflect.Interface:
		v.Set(reflect.ValueOf("default"))
	case reflect.Func:
	case reflect.Struct:
		for i := range v.NumField() {
			if t := v.Type().Field(i); t.Name == "Block" && v.Type() == reflect.TypeFor[schema.NestedBlock]() {
				// One level of nesting is enough.
				v.Field(i).Set(reflect.ValueOf(schema.Block{Doc: "inner", Attributes: []schema.Attribute{{Name: "a", Type: schema.Bool}}}))
				continue
			}
			f.fill(v.Field(i))
		}
	default:
		panic(v.Type())
	}
}

func filled[T any]() T {
	var v T
	(&filler{}).fill(reflect.ValueOf(&v).Elem())
	return v
}

// check sends a value to its message, through bytes, and back.
func check[T any, P proto.Message](t *testing.T, to func(T) P, from func(P) T, change ...func(*T)) {
	t.Helper()
	for name, v := range map[string]T{"filled": filled[T](), "zero": *new(T)} {
		for _, c := range change {
			c(&v)
		}
		b, err := proto.Marshal(to(v))
		if err != nil {
			t.Fatalf("%T %s: %v", v, name, err)
		}
		p := to(v).ProtoReflect().New().Interface()
		if err := proto.Unmarshal(b, p); err != nil {
			t.Fatal(err)
		}
		opt := cmp.Comparer(func(a, b schema.Type) bool {
			x, _ := a.MarshalJSON()
			y, _ := b.MarshalJSON()
			return string(x) == string(y)
		})
		if d := cmp.Diff(v, from(p.(P)), opt); d != "" {
			t.Errorf("%T %s (-sent +received):\n%s", v, name, d)
		}
	}
}

func TestRoundTrips(t *testing.T) {
	check(t, StateProto, State)
	check(t, func(r driver.CreateRequest) *pb.CreateRequest { return CreateRequestProto(&r) },
		func(p *pb.CreateRequest) driver.CreateRequest { return *CreateRequest(p) })
	check(t, func(r driver.ResumeRequest) *pb.ResumeRequest { return ResumeRequestProto(&r) },
		func(p *pb.ResumeRequest) driver.ResumeRequest { return *ResumeRequest(p) })
	check(t, AccountsProto, Accounts)
	check(t, MountInfoProto, MountInfo)
	check(t, InfoProto, Info)
	check(t, ProgressProto, Progress)
	check(t, NativeSnapshotProto, NativeSnapshot)
	check(t, EndpointProto, Endpoint)
	check(t, func(e driver.Event) *pb.SandboxEvent { return EventProto("s", e) }, Event)
	check(t, func(h driver.Host) *pb.ConfigureRequest { return HostProto(h, nil, nil) }, Host,
		func(h *driver.Host) { h.Orphans = max(h.Orphans, driver.OrphanPark) })
	check(t, func(c driver.Command) *pb.Start { return StartProto("s", &c, true) },
		func(p *pb.Start) driver.Command { return *Command(p) })
	check(t, SignalProto, Signal)
	check(t, StartedProto, Started)
	check(t, ExitProto, Exit)
	check(t, ProcessProto, Process)
	check(t, FileInfoProto, FileInfo)
	check(t, func(o driver.ListOptions) *pb.ListFilesRequest { return ListFilesProto("s", "p", o) }, ListOptions)
	check(t, func(o driver.ReadOptions) *pb.ReadRequest { return ReadProto("s", "p", o) }, ReadOptions)
	check(t, func(o driver.WriteOptions) *pb.WriteHeader { return WriteHeaderProto("s", "p", o) }, WriteOptions)
	check(t, WriteResultProto, WriteResult)
	check(t, func(c driver.MetaChange) *pb.SetMetaRequest { return MetaChangeProto("s", "p", c) }, MetaChange)
	check(t, func(o driver.ExportOptions) *pb.ExportRequest { return ExportProto("s", o) }, ExportOptions)
	check(t, func(o driver.ImportOptions) *pb.ImportHeader { return ImportHeaderProto("s", o) }, ImportOptions)
	check(t, ImportResultProto, ImportResult)
	check(t, FileEventProto, FileEvent)
	check(t, func(d driver.Description) *pb.DescribeResponse {
		p, err := DescriptionProto(d)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}, func(p *pb.DescribeResponse) driver.Description {
		d, err := Description(p)
		if err != nil {
			t.Fatal(err)
		}
		return d
	})
}

func TestNamesNeedNotBeUTF8(t *testing.T) {
	const name = "a\xff\xfe\n"
	check(t, FileInfoProto, FileInfo, func(f *driver.FileInfo) { f.Path, f.Target = name, name })
	check(t, func(c driver.Command) *pb.Start { return StartProto("s", &c, true) },
		func(p *pb.Start) driver.Command { return *Command(p) },
		func(c *driver.Command) { c.Argv, c.Env, c.Dir = []string{name}, map[string]string{"A": name}, name })
	b, err := proto.Marshal(ReadProto("s", name, driver.ReadOptions{}))
	var got pb.ReadRequest
	if err != nil || proto.Unmarshal(b, &got) != nil || got.GetPath() != name {
		t.Errorf("path %q, %v", got.GetPath(), err)
	}
}

func TestUnknownEnumValuesAreUnspecified(t *testing.T) {
	if got := FileInfo(&pb.FileInfo{Type: 99}).Type; got != driver.TypeUnknown {
		t.Errorf("file type %d", got)
	}
	if got := OrphanPolicy(77); got != driver.OrphanPark {
		t.Errorf("orphan policy %d", got)
	}
	if got := Event(&pb.SandboxEvent{Kind: -1}).Kind; got != 0 {
		t.Errorf("event kind %d", got)
	}
}

func TestDescriptionAsJSON(t *testing.T) {
	want := filled[driver.Description]()
	b, err := MarshalDescription(want)
	if err != nil {
		t.Fatal(err)
	}
	// A newer driver may say more.
	b = []byte(strings.Replace(string(b), "{", `{"fromTheFuture": 1,`, 1))
	got, err := UnmarshalDescription(b)
	if err != nil {
		t.Fatal(err)
	}
	x, _ := DescriptionProto(want)
	y, _ := DescriptionProto(got)
	if !proto.Equal(x, y) {
		t.Errorf("got %v, want %v", y, x)
	}
}

func TestErrorKeepsWhatMatters(t *testing.T) {
	index := int64(3)
	inner := errors.New("disk on fire")
	want := &errs.Error{
		Code: errs.NoSpace, Op: "files.write", Message: "no room", Hint: "delete something", Retry: errs.RetrySafe,
		RetryAfter: 3 * time.Second, Context: map[string]string{"path": "a"}, MaybeApplied: true,
		Vendor: &errs.Vendor{HTTPStatus: 507, Code: "x", RequestID: "r", Message: "m"},
		Path:   []errs.PathStep{{Attribute: "a"}, {Key: "k"}, {Index: &index}}, Err: fmt.Errorf("write: %w", inner),
	}
	got, typed := Error(StatusError(want, nil))
	if !typed || got.Error() != want.Error() {
		t.Errorf("got %q, want %q", got, want)
	}
	causes := []string{got.Err.Error(), errors.Unwrap(got.Err).Error()}
	if d := cmp.Diff([]string{"write: disk on fire", "disk on fire"}, causes); d != "" {
		t.Error(d)
	}
	got.Err, want.Err = nil, nil
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestErrorWithoutAType(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		code errs.Code
		text string
	}{
		"plain":   {errors.New("boom"), errs.Internal, "boom"},
		"wrapped": {fmt.Errorf("outer: %w", errs.New(errs.FileNotFound, "no a")), errs.FileNotFound, "outer: no a"},
		"wrap":    {errs.Wrap(errs.Internal, "read", errs.New(errs.FileNotFound, "no a")), errs.FileNotFound, "read: no a"},
		"context": {context.DeadlineExceeded, errs.Canceled, "context deadline exceeded"},
	} {
		got, typed := Error(StatusError(c.err, nil))
		if !typed || !errors.Is(got, c.code) || got.Error() != c.text {
			t.Errorf("%s: %v (%s)", name, got, got.Code)
		}
	}
}

func TestErrorIsRedactedAndBounded(t *testing.T) {
	const secret = "hunter2hunter2"
	e := &errs.Error{
		Code: errs.AuthFailed, Op: "x " + secret, Message: "m " + secret, Hint: secret, Context: map[string]string{secret: secret},
		Vendor: &errs.Vendor{Message: secret, Code: secret, RequestID: secret},
		Err:    errors.New(secret + strings.Repeat("x", 1<<20)),
	}
	st := Status(e, func(s string) string { return strings.ReplaceAll(s, secret, "***") })
	b, err := proto.Marshal(st.Proto())
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(b), secret) {
		t.Error("the secret is in the status")
	}
	if len(b) > 64<<10 {
		t.Errorf("status of %d bytes", len(b))
	}
}
