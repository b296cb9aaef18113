package main

// mail_bench_test.go tells what a large inbox costs: 10 000 messages, 20 MB.

import (
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// largeInbox also gives the file's text.
func largeInbox(tb testing.TB) (x *inboxes, path string, text string) {
	x, dir := mailTeam(tb)
	path = filepath.Join(dir, "arch.json")
	one := `{
    "from": "lead",
    "text": "` + strings.Repeat("some words and a \\\"quoted\\\" one, ", 57) + `",
    "timestamp": "2026-11-21T09:17:30.784Z",
    "read": true,
    "message_id": "6f6d2f6e-0000-4000-8000-000000000000"
  }`
	text = "[\n  " + strings.Repeat(one+",\n  ", 9990) + strings.Repeat(strings.Replace(one, "true", "false", 1)+",\n  ", 9) + strings.Replace(one, "true", "false", 1) + "\n]"
	writeInbox(tb, path, text)
	return x, path, text
}

func BenchmarkInboxAppend(b *testing.B) {
	for _, name := range []string{"unknown", "known"} {
		b.Run(name, func(b *testing.B) {
			x, path, text := largeInbox(b)
			var most time.Duration
			least := time.Hour
			for b.Loop() {
				b.StopTimer()
				writeInbox(b, path, text)
				if name == "known" {
					x.count(b.Context(), "crew", "arch")
				}
				b.StartTimer()
				start := time.Now()
				if _, _, err := x.send(b.Context(), "crew", "arch", mailMessage{From: "codex", Text: "hello"}); err != nil {
					b.Fatal(err)
				}
				took := time.Since(start)
				most, least = max(most, took), min(least, took)
			}
			b.ReportMetric(float64(len(text))/1e6, "MB-inbox")
			b.ReportMetric(float64(least.Microseconds())/1000, "ms-min")
			b.ReportMetric(float64(most.Microseconds())/1000, "ms-max")
		})
	}
}

func BenchmarkInboxCount(b *testing.B) {
	x, path, _ := largeInbox(b)
	b.Run("unchanged", func(b *testing.B) {
		for b.Loop() {
			if n, err := x.count(b.Context(), "crew", "arch"); n != 10 || err != nil {
				b.Fatal(n, err)
			}
		}
	})
	b.Run("changed", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			ageFile(b, path, time.Minute+time.Duration(i)*time.Millisecond)
			if n, err := x.count(b.Context(), "crew", "arch"); n != 10 || err != nil {
				b.Fatal(n, err)
			}
		}
	})
}

func BenchmarkInboxListAndMark(b *testing.B) {
	x, path, text := largeInbox(b)
	for b.Loop() {
		b.StopTimer()
		writeInbox(b, path, text)
		b.StartTimer()
		msgs, _, err := x.list(b.Context(), "crew", "arch", mailFilter{Limit: 10})
		if err != nil {
			b.Fatal(err)
		}
		var keys []string
		for _, m := range msgs {
			keys = append(keys, m.Key)
		}
		if _, err := x.markRead(b.Context(), "crew", "arch", keys); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkInboxSendSmall(b *testing.B) {
	x, dir := mailTeam(b)
	for b.Loop() {
		b.StopTimer()
		writeInbox(b, filepath.Join(dir, "arch.json"), "["+claudeMail+"]")
		b.StartTimer()
		if _, _, err := x.send(b.Context(), "crew", "arch", mailMessage{From: "codex", Text: "hello"}); err != nil {
			b.Fatal(err)
		}
	}
}
