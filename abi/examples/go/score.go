// SPDX-License-Identifier: Apache-2.0

// Command score scores a prompt, as text, as ids and in a batch, shows the errors that a program must
// expect, and checks that goroutines and many engines do no harm. The same in every language of
// abi/examples.
//
//	score LIBRARY MODEL PROMPT_FILE [IDS_MODEL OTHER_LIBRARY]
//
// IDS_MODEL: a model folder without a tokenizer. OTHER_LIBRARY: one of another ABI version.
package main

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"sync"

	"example.org/score/cua"
)

const (
	maxTokens  = 4096
	options    = 3
	goroutines = 8
	rounds     = 5
	engines    = 50
)

func printScore(name string, score *cua.Score) {
	fmt.Printf("%s: %s, %d tokens, flags %d,", name, score.Letter(), score.Tokens, score.Flags)
	for i, probability := range score.Probabilities {
		fmt.Printf(" %c %.6f", 'A'+i, probability)
	}
	fmt.Println()
}

func printError(name string, err error) {
	if err == nil {
		fmt.Printf("%s: no error\n", name)
	} else {
		fmt.Printf("%s: %v\n", name, err)
	}
}

// of gives the library's own error, or one without a code.
func of(err error) *cua.Error {
	var e *cua.Error
	if !errors.As(err, &e) {
		return &cua.Error{}
	}
	return e
}

func printAnswers(engine *cua.Engine, text string, ids []uint32) error {
	asText, asIDs := cua.Prompt{Text: text, Options: options}, cua.Prompt{IDs: ids, Options: options}
	score, err := engine.Score(asText)
	if err != nil {
		return err
	}
	printScore("text", score)
	if score, err = engine.Score(asIDs); err != nil {
		return err
	}
	printScore("ids", score)
	batch, err := engine.ScoreBatch([]cua.Prompt{asText, asIDs, {Text: "A or B?", Options: 2}})
	if err != nil {
		return err
	}
	for i := range batch {
		printScore("batch", &batch[i])
	}

	if err := engine.SetGraphMode(cua.GraphExact); err == nil {
		fmt.Println("graphs: on")
	} else if of(err).Code == cua.Unsupported { // the CPU library: the answers are the same without
		printError("graphs", err)
	} else {
		return err
	}
	for i := 0; i < 3; i++ {
		if score, err = engine.Score(asText); err != nil {
			return err
		}
		printScore("again", score)
	}
	s, err := engine.Stats()
	if err != nil {
		return err
	}
	fmt.Printf("statistics: forwards %d, prompts %d, tokens %d, captures %d, replays %d, evictions %d, fallbacks %d, "+
		"scratch_bytes %d, device_bytes %d\n", s.Forwards, s.Prompts, s.Tokens, s.Captures, s.Replays, s.Evictions,
		s.Fallbacks, s.ScratchBytes, s.DeviceBytes)
	return nil
}

func printErrors(library *cua.Library, path, model string, engine *cua.Engine, text string) {
	_, err := cua.Open(path + ".absent")
	fmt.Printf("no library: %s\n", of(err).Message)
	_, err = library.Open(model+"/absent", cua.Options{})
	printError("no model", err)
	_, err = engine.Score(cua.Prompt{IDs: make([]uint32, maxTokens+1), Options: options})
	printError("too long", err)
	_, err = engine.Score(cua.Prompt{Text: text, Options: 0})
	printError("0 options", err)
	_, err = engine.Score(cua.Prompt{Text: text, Options: 27})
	printError("27 options", err)
	_, err = engine.TokenizeInto(text, nil)
	printError("short buffer", err)
	fmt.Printf("short buffer: %d needed\n", of(err).Needed)
}

func printGoroutines(engine *cua.Engine, text string) error {
	prompt := cua.Prompt{Text: text, Options: options}
	expected, err := engine.Score(prompt)
	if err != nil {
		return err
	}
	var running sync.WaitGroup
	answers := make([]string, goroutines)
	for i := range answers {
		running.Add(1)
		go func(answer *string) {
			defer running.Done()
			*answer = "equal"
			for round := 0; round < rounds; round++ {
				score, err := engine.Score(prompt)
				if err != nil || !reflect.DeepEqual(score.Probabilities, expected.Probabilities) {
					*answer = "DIFFERENT"
				}
			}
		}(&answers[i])
	}
	running.Wait()
	all := "equal"
	if strings.Contains(strings.Join(answers, " "), "DIFFERENT") {
		all = "DIFFERENT"
	}
	fmt.Printf("threads: %d, %s answers\n", goroutines, all)
	return nil
}

func residentKilobytes() (int, error) {
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, err
	}
	var size, resident int
	_, err = fmt.Sscan(string(statm), &size, &resident)
	return resident * os.Getpagesize() / 1024, err
}

func printMemory(library *cua.Library, model string) error {
	early := 0
	for number := 1; number <= engines; number++ {
		engine, err := library.Open(model, cua.Options{})
		if err != nil {
			return err
		}
		_, err = engine.Score(cua.Prompt{IDs: []uint32{1, 2, 3}, Options: options})
		engine.Close()
		if err != nil {
			return err
		}
		if number == engines/5 {
			if early, err = residentKilobytes(); err != nil {
				return err
			}
		}
	}
	late, err := residentKilobytes()
	fmt.Printf("memory: %d kB after %d engines, %d kB after %d\n", early, engines/5, late, engines)
	return err
}

func run(arguments []string) error {
	path, model := arguments[1], arguments[2]
	library, err := cua.Open(path)
	if err != nil {
		return err
	}
	major, minor := library.Version()
	fmt.Printf("abi %d.%d\nbuild %s\n", major, minor, library.BuildInfo())
	engine, err := library.Open(model, cua.Options{MaxPromptTokens: maxTokens})
	if err != nil {
		return err
	}
	defer engine.Close()
	description, err := engine.Describe()
	if err != nil {
		return err
	}
	fmt.Println("engine", description)

	content, err := os.ReadFile(arguments[3])
	if err != nil {
		return err
	}
	text := string(content)
	ids, err := engine.Tokenize(text)
	if err != nil {
		return err
	}
	fmt.Printf("prompt: %d tokens, %d to %d\n", len(ids), ids[0], ids[len(ids)-1])
	if err := printAnswers(engine, text, ids); err != nil {
		return err
	}
	printErrors(library, path, model, engine, text)
	if err := printGoroutines(engine, text); err != nil {
		return err
	}
	engine.Close()

	if len(arguments) == 6 {
		idsModel, other := arguments[4], arguments[5]
		engine, err := library.Open(idsModel, cua.Options{})
		if err != nil {
			return err
		}
		_, err = engine.Score(cua.Prompt{Text: text, Options: options})
		printError("no tokenizer", err)
		engine.Close()
		_, err = cua.Open(other)
		printError("other version", err)
		return printMemory(library, idsModel)
	}
	return nil
}

func main() {
	if len(os.Args) != 4 && len(os.Args) != 6 {
		fmt.Fprintf(os.Stderr, "usage: %s LIBRARY MODEL PROMPT_FILE [IDS_MODEL OTHER_LIBRARY]\n", os.Args[0])
		os.Exit(2)
	}
	if err := run(os.Args); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
