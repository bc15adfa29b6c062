package main

import (
	"strings"

	"github.com/spf13/pflag"

	"github.com/varve-io/varve/topology"
)

// kafkaPasswordEnv holds the password itself.
const kafkaPasswordEnv = "VARVE_KAFKA_PASSWORD"

// kafkaConfig is the file's kafka section; its keys are also flags behind kafka-.
type kafkaConfig struct {
	TLS          bool   `yaml:"tls"`
	CA           string `yaml:"ca"`
	Cert         string `yaml:"cert"`
	Key          string `yaml:"key"`
	ServerName   string `yaml:"server_name"`
	SASL         string `yaml:"sasl"`
	User         string `yaml:"user"`
	PasswordFile string `yaml:"password_file"`
	TokenFile    string `yaml:"token_file"`
	TokenCommand string `yaml:"token_command"`
	TokenURL     string `yaml:"token_url"`
	Scope        string `yaml:"scope"`
}

// flagValues gives the section's flags their values.
func (k *kafkaConfig) flagValues(text func(name, value string)) {
	if k.TLS {
		text("kafka-tls", "true")
	}
	text("kafka-ca", k.CA)
	text("kafka-cert", k.Cert)
	text("kafka-key", k.Key)
	text("kafka-server-name", k.ServerName)
	text("kafka-sasl", k.SASL)
	text("kafka-user", k.User)
	text("kafka-password-file", k.PasswordFile)
	text("kafka-token-file", k.TokenFile)
	text("kafka-token-command", k.TokenCommand)
	text("kafka-token-url", k.TokenURL)
	text("kafka-scope", k.Scope)
}

// kafkaFlags adds the flags by which brokers are reached that are not open to
// all. Every command takes them; the help of those that name brokers shows them.
func (a *app) kafkaFlags(f *pflag.FlagSet) {
	s := &a.security
	f.BoolVar(&s.TLS, "kafka-tls", false, "encrypt the connections to the brokers; the certificate flags imply it")
	f.StringVar(&s.CAFile, "kafka-ca", "", "PEM `file` of the brokers' certificate authorities (default: the system's)")
	f.StringVar(&s.CertFile, "kafka-cert", "", "PEM `file` of this client's certificate")
	f.StringVar(&s.KeyFile, "kafka-key", "", "PEM `file` of its key")
	f.StringVar(&s.ServerName, "kafka-server-name", "", "`name` that the brokers' certificates are for (default: the host)")
	f.StringVar(&s.Mechanism, "kafka-sasl", "", "`mechanism` to log in with: "+strings.Join(topology.Mechanisms, ", "))
	f.StringVar(&s.User, "kafka-user", "", "`user` to log in as, or client id for --kafka-token-url")
	f.StringVar(&s.PasswordFile, "kafka-password-file", "", "`file` with its password (or the password in "+kafkaPasswordEnv+")")
	f.StringVar(&s.TokenFile, "kafka-token-file", "", "`file` with the token of OAUTHBEARER")
	f.StringVar(&s.TokenCommand, "kafka-token-command", "", "`command` that prints the token of OAUTHBEARER")
	f.StringVar(&s.TokenURL, "kafka-token-url", "", "token endpoint `URL` that gives the token for client credentials (user and password)")
	f.StringVar(&s.Scope, "kafka-scope", "", "`scope` to ask the token endpoint for")
	showKafkaFlags(f, false)
}

func showKafkaFlags(f *pflag.FlagSet, show bool) {
	f.VisitAll(func(x *pflag.Flag) {
		if strings.HasPrefix(x.Name, "kafka-") || strings.HasPrefix(x.Name, "schema-registry-") {
			x.Hidden = !show
		}
	})
}

// secure makes the client options of the flags.
func (a *app) secure() error {
	a.security.Password, _ = a.lookupEnv(kafkaPasswordEnv)
	if a.security.Mechanism == "" || a.security.PasswordFile != "" {
		a.security.Password = "" // it may stand in the environment for others
	}
	a.security.Mechanism = strings.ToUpper(a.security.Mechanism)
	return asUsage(a.security.Apply(&a.kafka))
}

// client is how brokers are reached; none: those that the data folder names.
func (a *app) client(brokers ...string) topology.ClientOptions {
	o := a.kafka
	o.Brokers, o.Logger = brokers, a.log
	return o
}
