package topology

import "path/filepath"

// SecurityFacts are what a data folder remembers of how its brokers are
// reached. There is no secret in it, and nothing that names one which a login
// would send: neither password nor token, no file or command that has them.
type SecurityFacts struct {
	TLS        bool   `json:"tls,omitempty"`
	CAFile     string `json:"ca_file,omitempty"`
	CertFile   string `json:"cert_file,omitempty"`
	KeyFile    string `json:"key_file,omitempty"` // a TLS key never leaves the machine
	ServerName string `json:"server_name,omitempty"`
	Mechanism  string `json:"sasl,omitempty"`
	User       string `json:"user,omitempty"`
}

// facts are what of s may be remembered; nil: the brokers are open to all.
func (s *Security) facts() (*SecurityFacts, error) {
	f := &SecurityFacts{TLS: s.TLS, CAFile: s.CAFile, CertFile: s.CertFile, KeyFile: s.KeyFile, ServerName: s.ServerName, Mechanism: s.Mechanism, User: s.User}
	if *f == (SecurityFacts{}) {
		return nil, nil
	}
	for _, p := range []*string{&f.CAFile, &f.CertFile, &f.KeyFile} { // later commands run elsewhere
		if *p == "" {
			continue
		}
		var err error
		if *p, err = filepath.Abs(*p); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// Remembered is the security that facts tell of, without its secrets.
func (f *SecurityFacts) Remembered() Security {
	return Security{TLS: f.TLS, CAFile: f.CAFile, CertFile: f.CertFile, KeyFile: f.KeyFile, ServerName: f.ServerName, Mechanism: f.Mechanism, User: f.User}
}
