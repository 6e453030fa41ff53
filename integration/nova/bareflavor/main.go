// Command bareflavor makes a flavor that asks for devices with the requests that
// gpustack makes, and nothing else: the least that any program could take.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
)

func main() {
	if err := run(os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

func run(name string) error {
	var token string
	ask := func(method, url, body string, answer any) error {
		request, err := http.NewRequest(method, url, bytes.NewReader([]byte(body)))
		if err != nil {
			return err
		}
		request.Header.Set("X-Auth-Token", token)
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("OpenStack-API-Version", "compute 2.86")
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil {
			return err
		}
		if response.StatusCode >= 300 {
			return fmt.Errorf("%s %s: %s: %s", method, url, response.Status, text)
		}
		if token == "" {
			token = response.Header.Get("X-Subject-Token")
		}
		return json.Unmarshal(text, answer)
	}
	var signedIn struct {
		Token struct {
			Catalog []struct {
				Type      string
				Endpoints []struct{ Interface, URL string }
			}
		}
	}
	err := ask("POST", os.Getenv("OS_AUTH_URL")+"/auth/tokens", fmt.Sprintf(`{"auth": {"identity": {"methods": ["password"], "password": {"user":
		{"name": %q, "password": %q, "domain": {"name": "Default"}}}}, "scope": {"project": {"name": %q, "domain": {"name": "Default"}}}}}`,
		os.Getenv("OS_USERNAME"), os.Getenv("OS_PASSWORD"), os.Getenv("OS_PROJECT_NAME")), &signedIn)
	if err != nil {
		return err
	}
	var nova string
	for _, service := range signedIn.Token.Catalog {
		for _, endpoint := range service.Endpoints {
			if service.Type == "compute" && endpoint.Interface == "public" {
				nova = endpoint.URL
			}
		}
	}
	var made struct{ Flavor struct{ ID string } }
	var ignored any
	if err := ask("GET", nova+"/", "", &ignored); err != nil {
		return err
	}
	if err := ask("GET", nova+"/flavors/detail?is_public=None", "", &ignored); err != nil {
		return err
	}
	body := fmt.Sprintf(`{"flavor": {"name": %q, "vcpus": 8, "ram": 32768, "disk": 80}}`, name)
	if err := ask("POST", nova+"/flavors", body, &made); err != nil {
		return err
	}
	return ask("POST", nova+"/flavors/"+made.Flavor.ID+"/os-extra_specs", `{"extra_specs": {"pci_passthrough:alias": "K4200:2"}}`, &ignored)
}
