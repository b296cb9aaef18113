package main

// mail_spool.go owns mail that couldn't be put into its inbox, because others held the locks all the time. It is left
// where `atm` looks for such mail, in its shape: atm tries again, ten times.
// mail.go calls it. Never reports such a message as delivered: it is spooled.

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"path/filepath"
	"time"
)

const mailSpoolTries = 10 // atm's: then it moves the message to failed/

// spoolMail writes a message into dir, atm's …/spool/pending.
func spoolMail(dir, team, member string, m mailMessage, now time.Time) error {
	stamp := now.UTC().Format(mailTimeLayout)
	text, err := json.MarshalIndent(struct {
		TargetTeam  string          `json:"target_team"`
		TargetAgent string          `json:"target_agent"`
		Message     json.RawMessage `json:"message"`
		RetryCount  int             `json:"retry_count"`
		MaxRetries  int             `json:"max_retries"`
		CreatedAt   string          `json:"created_at"`
		LastAttempt string          `json:"last_attempt"`
	}{team, member, m.encode(), 0, mailSpoolTries, stamp, stamp}, "", "  ")
	if err != nil {
		panic("BUG: marshalling a spooled message: " + err.Error())
	}
	var b [4]byte
	rand.Read(b[:]) // never fails
	name := fmt.Sprintf("%d-%x-%s@%s.json", now.Unix(), b, member, team)
	if err := writeWhole(filepath.Join(dir, name), text); err != nil {
		return fmt.Errorf("spooling the message: %w", err)
	}
	return nil
}
