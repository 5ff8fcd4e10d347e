package concurrency

import "slices"

// unknown holds the visits of unknown callers, by network and subject.
type unknownCallers struct {
	networks map[string]*network
	numbered uint64
}

type network struct {
	// bySubject holds visits in order of arrival.
	bySubject map[string][]*visit
	count     int
	latest    uint64
}

func newUnknownCallers() *unknownCallers { return &unknownCallers{networks: map[string]*network{}} }

func (s *unknownCallers) add(one *visit) {
	s.numbered++
	one.number = s.numbered
	of := s.networks[one.network]
	if of == nil {
		of = &network{bySubject: map[string][]*visit{}}
		s.networks[one.network] = of
	}
	of.bySubject[one.subject] = append(of.bySubject[one.subject], one)
	of.count++
	of.latest = one.number
}

func (s *unknownCallers) remove(one *visit) {
	of := s.networks[one.network]
	line := of.bySubject[one.subject]
	if at := slices.Index(line, one); at >= 0 {
		line = slices.Delete(line, at, at+1)
		of.count--
	}
	of.bySubject[one.subject] = line
	if len(line) == 0 {
		delete(of.bySubject, one.subject)
	}
	if of.count == 0 {
		delete(s.networks, one.network)
	}
}

// with returns the visits of a subject from all networks.
func (s *unknownCallers) with(subject string) []*visit {
	var found []*visit
	for _, each := range s.networks {
		found = append(found, each.bySubject[subject]...)
	}
	return found
}

// mostRecentOfTheMost returns the latest visit of the subject with most visits in the network with
// most; nil without unknown callers. Ties go to the latest visit, so that among equals a new visit
// displaces no other and services finish the requests that they have begun.
func (s *unknownCallers) mostRecentOfTheMost() *visit {
	var of *network
	for _, each := range s.networks {
		if of == nil || each.count > of.count || (each.count == of.count && each.latest > of.latest) {
			of = each
		}
	}
	if of == nil {
		return nil
	}
	var found []*visit
	for _, each := range of.bySubject {
		if len(each) > len(found) ||
			(len(each) == len(found) && each[len(each)-1].number > found[len(found)-1].number) {
			found = each
		}
	}
	return found[len(found)-1]
}
