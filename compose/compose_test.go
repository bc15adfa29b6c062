package compose

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// files are those below this folder with a suffix.
func files(t *testing.T, suffix string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && strings.HasSuffix(path, suffix) {
			out = append(out, path)
		}
		return err
	})
	if err != nil || len(out) == 0 {
		t.Fatalf("%d files of %s: %v", len(out), suffix, err)
	}
	return out
}

func read(t *testing.T, path string, into any) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err == nil {
		err = yaml.Unmarshal(b, into)
	}
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

func TestFilesParse(t *testing.T) {
	for _, path := range files(t, ".yaml") {
		var v map[string]any
		if read(t, path, &v); len(v) == 0 {
			t.Errorf("%s is empty", path)
		}
	}
}

// composition is what a compose file says that can be checked here.
type composition struct {
	Services map[string]struct {
		Image       string            `yaml:"image"`
		Build       map[string]any    `yaml:"build"`
		Command     []string          `yaml:"command"`
		Volumes     []string          `yaml:"volumes"`
		Environment map[string]string `yaml:"environment"`
		DependsOn   any               `yaml:"depends_on"`
		Configs     []struct {
			Source string `yaml:"source"`
		} `yaml:"configs"`
	} `yaml:"services"`
	Volumes map[string]any `yaml:"volumes"`
	Configs map[string]any `yaml:"configs"`
}

// Every service has an image or is built; what it depends on, mounts and is
// configured by is there; what it listens to is this machine alone.
func TestCompositions(t *testing.T) {
	for _, path := range files(t, "compose.yaml") {
		var c composition
		read(t, path, &c)
		used := map[string]bool{}
		for name, s := range c.Services {
			if (s.Image == "") == (s.Build == nil) {
				t.Errorf("%s: %s has an image and is built, or neither", path, name)
			}
			var needs []string
			switch d := s.DependsOn.(type) {
			case []any:
				for _, x := range d {
					needs = append(needs, x.(string))
				}
			case map[string]any:
				for x := range d {
					needs = append(needs, x)
				}
			}
			for _, x := range needs {
				if _, ok := c.Services[x]; !ok {
					t.Errorf("%s: %s depends on %s, which is not there", path, name, x)
				}
			}
			for _, v := range s.Volumes {
				from, _, _ := strings.Cut(v, ":")
				if !strings.HasPrefix(from, ".") {
					used[from] = true
					if _, ok := c.Volumes[from]; !ok {
						t.Errorf("%s: %s mounts the volume %s, which is not there", path, name, from)
					}
				} else if _, err := os.Stat(filepath.Join(filepath.Dir(path), from)); err != nil {
					t.Errorf("%s: %s: %v", path, name, err)
				}
			}
			for _, x := range s.Configs {
				if _, ok := c.Configs[x.Source]; !ok {
					t.Errorf("%s: %s has the config %s, which is not there", path, name, x.Source)
				}
			}
		}
		for v := range c.Volumes {
			if !used[v] {
				t.Errorf("%s: nobody mounts the volume %s", path, v)
			}
		}
	}
}

// Each node's configuration passes varve's own check, and its flags are known.
func TestNodesAreConfigured(t *testing.T) {
	varve := filepath.Join(t.TempDir(), "varve")
	if out, err := exec.Command("go", "build", "-o", varve, "../cmd/varve").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	checked := 0
	for _, path := range files(t, "compose.yaml") {
		var c composition
		read(t, path, &c)
		for name, s := range c.Services {
			if s.Build == nil {
				continue
			}
			checked++
			config := ""
			for _, v := range s.Volumes {
				if from, ok := strings.CutSuffix(v, ":/etc/varve/varve.yaml:ro"); ok {
					config = filepath.Join(filepath.Dir(path), from)
				}
			}
			i := slices.Index(s.Command, "/etc/varve/varve.yaml")
			if config == "" || i < 0 || s.Command[0] != "run" {
				t.Errorf("%s: %s does not run with its configuration: %q", path, name, s.Command)
				continue
			}
			check := exec.Command(varve, "config", "check", config)
			check.Env = os.Environ()
			for k, v := range s.Environment {
				if strings.HasPrefix(v, "${") { // the operator's own
					v = "something-secret"
				}
				check.Env = append(check.Env, k+"="+v)
			}
			if out, err := check.CombinedOutput(); err != nil {
				t.Errorf("%s: %s: %v: %s", path, name, err, out)
			}
			// --help stands last: the flags before it are read, nothing starts.
			args := append(slices.Clone(s.Command), "--help")
			args[i] = config
			if out, err := exec.Command(varve, args...).CombinedOutput(); err != nil {
				t.Errorf("%s: %s: %v: %s", path, name, err, out)
			}
		}
	}
	if checked != 5 {
		t.Errorf("%d nodes were checked, want 5", checked)
	}
}

// Each metric that the dashboard shows is one of the documented ones.
func TestDashboard(t *testing.T) {
	documented, err := os.ReadFile("../topology/README.md")
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile(`varve_[a-z_]+`)
	for _, path := range files(t, ".json") {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var d struct {
			Panels []struct {
				Title   string `json:"title"`
				Targets []struct {
					Expr string `json:"expr"`
				} `json:"targets"`
			} `json:"panels"`
		}
		if err := json.Unmarshal(b, &d); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if len(d.Panels) < 10 {
			t.Errorf("%s has %d panels", path, len(d.Panels))
		}
		for _, p := range d.Panels {
			if len(p.Targets) == 0 {
				err = errors.Join(err, errors.New("a panel shows nothing: "+p.Title))
			}
			for _, x := range p.Targets {
				for _, m := range name.FindAllString(x.Expr, -1) {
					if !strings.Contains(string(documented), "`"+strings.TrimSuffix(m, "_bucket")+"`") {
						t.Errorf("%s: %s: there is no metric %s", path, p.Title, m)
					}
				}
			}
		}
		if err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}
