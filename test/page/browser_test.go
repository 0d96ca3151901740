// Package page looks at the page of weave-npc show matrix in a real browser.
package page

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weave-npc/weave-npc/test/sandbox"
)

func TestMain(m *testing.M) { os.Exit(sandbox.Main(m)) }

// program finds a browser. A machine whose system has none as a package, as Ubuntu, may be without; CI may not.
func program(t testing.TB) string {
	t.Helper()
	for _, name := range []string{"chromium", "google-chrome", "chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	const none = "there is no browser in the PATH, chromium or google-chrome; on Debian test/setup browser installs one"
	if os.Getenv("CI") != "" {
		t.Fatal(none)
	}
	t.Skip(none)
	return ""
}

// browser is a headless browser with one page, which is asked by messages of the DevTools protocol through a pipe. It
// has a network namespace of its own, without a network.
type browser struct {
	t       testing.TB
	in      *os.File
	out     *bufio.Reader
	number  int
	session string
}

// newBrowser starts one with a window of a size in pixels.
func newBrowser(t testing.TB, width, height int) *browser {
	t.Helper()
	home := t.TempDir()
	cmd := exec.Command(program(t), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage",
		"--force-color-profile=srgb", "--remote-debugging-pipe", "--user-data-dir="+home)
	cmd.Env = append(os.Environ(), "HOME="+home)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	theirIn, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, theirOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.ExtraFiles = []*os.File{theirIn, theirOut}
	if err := cmd.Start(); err != nil {
		t.Fatalf("the browser: %v", err)
	}
	_, _ = theirIn.Close(), theirOut.Close()
	t.Cleanup(func() {
		_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
		_ = cmd.Wait()
		_, _ = in.Close(), out.Close()
	})
	if err := out.SetReadDeadline(time.Now().Add(5 * time.Minute)); err != nil {
		t.Logf("a browser that does not answer will not be noticed: %v", err)
	}
	b := &browser{t: t, in: in, out: bufio.NewReader(out)}
	target := b.call("Target.createTarget", map[string]any{"url": "about:blank"})
	b.session = b.call("Target.attachToTarget", map[string]any{"targetId": target["targetId"], "flatten": true})["sessionId"].(string)
	b.call("Page.enable", nil)
	b.resize(width, height)
	return b
}

// call calls a method of the protocol and returns its result.
func (b *browser) call(method string, params map[string]any) map[string]any {
	b.t.Helper()
	b.number++
	message := map[string]any{"id": b.number, "method": method, "params": params}
	if b.session != "" {
		message["sessionId"] = b.session
	}
	text, err := json.Marshal(message)
	if err != nil {
		b.t.Fatal(err)
	}
	if _, err := b.in.Write(append(text, 0)); err != nil {
		b.t.Fatalf("the browser: %v", err)
	}
	for {
		line, err := b.out.ReadBytes(0)
		if err != nil {
			b.t.Fatalf("%s: the browser: %v", method, err)
		}
		var answer struct {
			ID     int
			Result map[string]any
			Error  *struct{ Message string }
		}
		if err := json.Unmarshal(line[:len(line)-1], &answer); err != nil {
			b.t.Fatal(err)
		}
		if answer.ID != b.number {
			continue // an event
		}
		if answer.Error != nil {
			b.t.Fatalf("%s: %s", method, answer.Error.Message)
		}
		return answer.Result
	}
}

func (b *browser) resize(width, height int) {
	b.t.Helper()
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false})
}

// open opens a page with a fragment, and waits until it is drawn. It returns how many milliseconds that took.
func (b *browser) open(file, fragment string) int {
	b.t.Helper()
	b.call("Page.navigate", map[string]any{"url": "about:blank"})
	b.call("Page.navigate", map[string]any{"url": "file://" + file + fragment})
	for range 3000 {
		if ms, ok := b.eval(`Number(document.documentElement?.dataset.drawn || 0)`).(float64); ok && ms > 0 {
			return int(ms)
		}
		time.Sleep(10 * time.Millisecond)
	}
	b.t.Fatal("the page is not drawn")
	return 0
}

// eval evaluates an expression in the page.
func (b *browser) eval(expression string) any {
	b.t.Helper()
	result := b.call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true})
	if failed, ok := result["exceptionDetails"]; ok {
		text, _ := json.Marshal(failed)
		b.t.Fatalf("%.200s: %s", expression, text)
	}
	return result["result"].(map[string]any)["value"]
}

// text evaluates an expression that is a text.
func (b *browser) text(expression string) string {
	b.t.Helper()
	s, _ := b.eval(expression).(string)
	return s
}

// waitIdle waits until the page has drawn what it was asked for.
func (b *browser) waitIdle() {
	b.t.Helper()
	b.eval(`new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done))))`)
}

// press presses keys, by their names, such as Control+Home.
func (b *browser) press(keys ...string) {
	b.t.Helper()
	codes := map[string]int{"Enter": 13, "Escape": 27, "PageUp": 33, "PageDown": 34, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowUp": 38,
		"ArrowRight": 39, "ArrowDown": 40, "Tab": 9}
	for _, key := range keys {
		modifiers := 0
		if rest, ok := strings.CutPrefix(key, "Control+"); ok {
			key, modifiers = rest, 2
		}
		event := map[string]any{"type": "keyDown", "key": key, "modifiers": modifiers}
		if code, ok := codes[key]; ok {
			event["windowsVirtualKeyCode"], event["code"] = code, key
		} else {
			event["text"] = key
		}
		if key == "Enter" {
			event["text"] = "\r"
		}
		b.call("Input.dispatchKeyEvent", event)
		event["type"] = "keyUp"
		delete(event, "text")
		b.call("Input.dispatchKeyEvent", event)
	}
	b.waitIdle()
}

// click clicks in the middle of an element.
func (b *browser) click(selector string) {
	b.t.Helper()
	at, ok := b.eval(`(() => { const e = document.querySelector(` + quoted(selector) + `); if (!e) return null;
		const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })()`).([]any)
	if !ok {
		b.t.Fatalf("there is no %s", selector)
	}
	for _, kind := range []string{"mousePressed", "mouseReleased"} {
		b.call("Input.dispatchMouseEvent", map[string]any{"type": kind, "x": at[0], "y": at[1], "button": "left", "clickCount": 1})
	}
	b.waitIdle()
}

// choose sets the value of a control as a user does.
func (b *browser) choose(id, value string) {
	b.t.Helper()
	b.eval(`(() => { const e = document.getElementById(` + quoted(id) + `); e.value = ` + quoted(value) + `;
		for (const kind of ["input", "change"]) e.dispatchEvent(new Event(kind, {bubbles: true})); })()`)
	b.waitIdle()
}

// picture writes a screenshot.
func (b *browser) picture(file string) {
	b.t.Helper()
	data, err := base64.StdEncoding.DecodeString(b.call("Page.captureScreenshot", map[string]any{"format": "png"})["data"].(string))
	if err != nil {
		b.t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(file, data, 0o600); err != nil {
		b.t.Fatal(err)
	}
}

// quoted returns a text as an expression.
func quoted(text string) string {
	out, _ := json.Marshal(text)
	return string(out)
}
