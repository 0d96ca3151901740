package answers

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/weave-npc/weave-npc/npc/source/convert"
)

// magic is what Kubernetes' protobuf format begins with. A runtime.Unknown follows, with an object in it.
const magic = "k8s\x00"

// The tags of the fields that are read. All fields of a runtime.Unknown and of a list hold bytes.
const (
	tagType   = 1<<3 | bytesType // of a runtime.Unknown: a runtime.TypeMeta
	tagObject = 2<<3 | bytesType // of a runtime.Unknown: the object
	tagMeta   = 1<<3 | bytesType // of a list: a metav1.ListMeta
	tagItem   = 2<<3 | bytesType // of a list: an object
	bytesType = 2                // the wire type
)

// answer is an answer that is copied while it is received.
type answer struct {
	in      *bufio.Reader
	path    string
	reduces bool

	kind    string
	outer   bytes.Buffer // what is written of the runtime.Unknown without the object
	object  bytes.Buffer // what is written of the object
	version metav1.ListMeta
}

// message is an object that can be encoded.
type message interface {
	metav1.Object
	Unmarshal([]byte) error
	Marshal() ([]byte, error)
}

// written returns what is left of the answer.
func (a *answer) written() io.Reader {
	header := append([]byte(magic), a.outer.Bytes()...)
	header = binary.AppendUvarint(append(header, tagObject), uint64(a.object.Len()))
	return io.MultiReader(bytes.NewReader(header), &a.object)
}

// read reads the answer, up to its end.
func (a *answer) read() error {
	var start [len(magic)]byte
	if _, err := io.ReadFull(a.in, start[:]); err != nil || string(start[:]) != magic {
		return errors.New("is not in the protobuf format of Kubernetes")
	}
	found := false
	err := each(a.in, func(tag uint64, in *io.LimitedReader) error {
		if tag == tagObject {
			found = true
			return a.readObject(in)
		}
		text, err := io.ReadAll(in)
		if err == nil && tag == tagType {
			var t runtime.TypeMeta
			err = t.Unmarshal(text)
			a.kind = t.Kind
		}
		write(&a.outer, tag, text)
		return err
	})
	if err == nil && !found {
		return errors.New("has no object")
	}
	return err
}

// readObject reads the object, whose kind has come before.
func (a *answer) readObject(in *io.LimitedReader) error {
	list, err := checkKind(a.kind, a.path)
	if err != nil {
		return err
	}
	if !list {
		_, err = io.Copy(&a.object, in)
		return err
	}
	var item bytes.Buffer
	err = each(bufio.NewReader(in), func(tag uint64, in *io.LimitedReader) error {
		item.Reset()
		if _, err := item.ReadFrom(in); err != nil {
			return err
		}
		text := item.Bytes()
		switch tag {
		case tagMeta:
			err = a.version.Unmarshal(text)
		case tagItem:
			text, err = a.item(text)
		}
		write(&a.object, tag, text)
		return err
	})
	if err != nil {
		return err
	}
	return checkVersion(a.kind, &a.version)
}

// item returns what is left of an object in a list.
func (a *answer) item(text []byte) ([]byte, error) {
	if !a.reduces {
		return text, nil
	}
	switch a.kind {
	case "PodList":
		return reduce(&corev1.Pod{}, text, convert.ReducePod)
	case "NetworkPolicyList":
		return reduce(&networkingv1.NetworkPolicy{}, text, convert.ReducePolicy)
	case "NamespaceList":
		return reduce(&corev1.Namespace{}, text, convert.ReduceNamespace)
	case "NodeList":
		return reduce(&corev1.Node{}, text, convert.ReduceNode)
	}
	return text, nil
}

func reduce[T message](o T, text []byte, reduced func(T) T) ([]byte, error) {
	if err := o.Unmarshal(text); err != nil {
		return nil, errors.Wrap(err, "has an item that cannot be decoded")
	}
	if o.GetName() == "" {
		return nil, errors.New("has an item without a name")
	}
	return reduced(o).Marshal()
}

// each calls f with each field of a message: its tag, and a reader of its bytes, which f reads up to their end.
func each(in *bufio.Reader, f func(tag uint64, in *io.LimitedReader) error) error {
	for {
		tag, err := binary.ReadUvarint(in)
		if errors.Is(err, io.EOF) {
			return nil
		}
		var size uint64
		if err == nil {
			size, err = binary.ReadUvarint(in)
		}
		if err != nil || tag&7 != bytesType || size > 1<<62 {
			return errors.Errorf("is broken off or not as protobuf encodes it: tag %d, %v", tag, err)
		}
		field := &io.LimitedReader{R: in, N: int64(size)}
		if err := f(tag, field); err != nil {
			return err
		}
		if field.N > 0 {
			return errors.New("is broken off")
		}
	}
}

func write(out *bytes.Buffer, tag uint64, text []byte) {
	out.Write(binary.AppendUvarint(binary.AppendUvarint(nil, tag), uint64(len(text))))
	out.Write(text)
}
