package main

import (
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// rememberSecurity takes how the brokers are reached from the data folder, where
// nothing says it now. Secrets are not there: they come from flags, environment
// and file as before. A folder that another user could have written is not
// believed: what it says decides where a password goes.
func (a *app) rememberSecurity(f *pflag.FlagSet) {
	if f.Lookup("data") == nil || a.kafkaGiven(f) {
		return
	}
	old, err := readNodeFacts(a.data)
	if err != nil || old == nil || old.Kafka == nil {
		return // the command itself tells what is wrong with the folder
	}
	if a.given("brokers") && !slices.Equal(a.brokers, old.Brokers) {
		return
	}
	if who := untrusted(a.data); who != "" {
		a.log.Warn("the data folder's account of how to reach its brokers is not used", "folder", a.data, "because", who)
		return
	}
	s := old.Kafka.Remembered()
	secret := a.security.PasswordFile
	if v, ok := a.lookupEnv(kafkaPasswordEnv); ok {
		secret += v
	}
	if s.Mechanism != "" && s.Mechanism != "AWS_MSK_IAM" && (secret == "" || s.Mechanism == "OAUTHBEARER") {
		if f.Lookup("brokers") != nil { // others read the lake alone
			a.log.Warn("the brokers ask for a login: give its secret", "folder", a.data, "sasl", s.Mechanism, "user", s.User, "by", "--kafka-password-file, "+kafkaPasswordEnv+" or the token's flags")
		}
		s.Mechanism, s.User = "", ""
	} else {
		s.PasswordFile = a.security.PasswordFile
	}
	a.security = s
}

// kafkaGiven says whether flags, environment or file say how brokers are
// reached. A password's file alone does not.
func (a *app) kafkaGiven(f *pflag.FlagSet) bool {
	given := false
	f.VisitAll(func(x *pflag.Flag) {
		given = given || strings.HasPrefix(x.Name, "kafka-") && x.Name != "kafka-password-file" && a.given(x.Name)
	})
	return given
}
