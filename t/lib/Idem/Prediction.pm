package Idem::Prediction;

# What may become of one key, by the tables of docs/when-something-dies.md: a small machine without any input or output.
# The tests drive real servers by the same events and ask here whether what they saw was allowed.
#
#   my @states = (start('transactional'));
#   my @next = follow(\@states, [ send => 'tag', 'after', 201, 0 ]);      # [answer, state], every one that may be
#
# A state is a hash:
#   mode   external | repeatable | transactional (leaves its response) | bare (leaves none) | marked (external with the
#          dispatch mark) | front (marked, behind a front controller: it can be met between reserve and dispatch)
#   rec    none | reserved | executing | unknown | succeeded       gen    the record's generation
#   own    the attempt that owns it                                 lease  live | dead (under lease) | gone
#   over   it has run longer than IdempotencyMaxRun                 ans    whose answer is kept: a generation, or `found`
#   empty  settled, and its response came and was not kept          eff    effects in the backend's own table
#   at     attempts under way: tag => { gen, point, in (the instance), httpd (alive), says (status) }
#
# Answers: parked | ran GEN | said STATUS | replay GEN|found | lost | and the slugs of problems.

use strict;
use warnings;
use Exporter 'import';

our @EXPORT_OK = qw(follow key_of locked may_resolve points start waits);

# The way of an attempt; it can be stopped at each. The backend works from `before` to `after`, whatever becomes of httpd.
my @WAY = qw(redirected handler before committing after answered settled end);
my %POINTS = (
    external => [qw(handler before after answered settled)], marked => [qw(handler before after answered settled)],
    front => [qw(redirected before after)], repeatable => [qw(handler before after answered settled)],
    transactional => [qw(handler before committing after answered settled)], bare => [qw(handler before committing after answered settled)],
);
my %NEXT = map { $WAY[$_] => $WAY[ $_ + 1 ] } 0 .. $#WAY - 1;

sub points { return @{ $POINTS{ $_[0] } } }
sub start { return { mode => $_[0], rec => 'none', gen => 0, own => '', lease => 'gone', over => 0, ans => '', empty => 0, eff => 0, at => {} } }
sub copy { my ($s) = @_; return { %$s, at => { map { $_ => { %{ $s->{at}{$_} } } } keys %{ $s->{at} } } } }

# The same text for the same state.
sub key_of {
    my ($s) = @_;
    return join ' ', (map { $s->{$_} } qw(mode rec gen own lease over ans empty eff)),
        map { my $tag = $_; join ':', $tag, map { $s->{at}{$tag}{$_} } qw(gen point in httpd says) } sort keys %{ $s->{at} };
}

sub settles { return $_[0]{mode} =~ /^(?:transactional|bare)$/ }     # the backend, by itself
sub is_external { return $_[0]{mode} =~ /^(?:external|marked|front)$/ }
sub is_live { return $_[0]{rec} =~ /^(?:reserved|executing)$/ }

# A backend is in the middle of its commit and holds the record.
sub locked { my ($s) = @_; return scalar grep { $_->{point} eq 'committing' && $_->{gen} == $s->{gen} } values %{ $s->{at} } }

# An earlier generation's backend that comes to its functions now waits for the one that commits.
sub waits { my ($s, $tag) = @_; return settles($s) && $s->{at}{$tag}{point} =~ /^(?:handler|before)\z/ && locked($s) }

# May the operator say "not executed"? Not while an attempt may still have its effect.
sub may_resolve {
    my ($s) = @_;
    return $s->{rec} eq 'unknown' && ($s->{eff} || !grep { $_->{point} =~ /^(?:redirected|handler|before|committing)$/ } values %{ $s->{at} });
}

# CONTRACT section 4, "Verdict": runs, or an answer. Where it says so the record becomes UNKNOWN by it.
sub verdict {
    my ($s) = @_;
    return 'runs' if $s->{rec} eq 'none';
    return 'outcome-unknown' if $s->{rec} eq 'unknown';
    if ($s->{rec} eq 'succeeded') {
        return "replay $s->{ans}" if $s->{ans};
        return $s->{empty} || $s->{lease} eq 'gone' ? 'response-not-stored' : 'in-progress';
    }
    return 'in-progress' if $s->{lease} ne 'gone' && !$s->{over} || locked($s);
    return $s->{rec} eq 'executing' && is_external($s) ? 'outcome-unknown' : 'runs';
}

# What somebody is told who comes too late and may not act.
sub look { my ($s) = @_; my $verdict = verdict($s); return $verdict eq 'runs' ? 'in-progress' : $verdict }

# CONTRACT section 4, "Settlement", and what the client of this attempt is told.
sub settle {
    my ($s, $a) = @_;
    my $answer = $a->{says} == 201 ? "ran $a->{gen}" : "said $a->{says}";
    return is_external($s) ? $answer : look($s) if $a->{gen} != $s->{gen};
    if ($s->{rec} eq 'succeeded') {
        # by the backend (or, while this one was late, by the operator): a response that fits is added if it left none
        if (settles($s) && !$s->{ans} && !$s->{empty}) {
            $a->{says} == 201 ? ($s->{ans} = $a->{gen}) : ($s->{empty} = 1);
        }
    }
    elsif ($a->{says} == 201) {
        @$s{qw(rec ans)} = ('succeeded', $a->{gen});
    }
    elsif ($a->{says} == 500 && !is_external($s)) {
        $s->{lease} = 'gone' if is_live($s);    # the backend itself says that it failed: free for the next
    }
    else {
        $s->{rec} = 'unknown';
    }
    return $answer;
}

# An attempt goes on to a point, as far as those live who have to do it. Its answer, `parked` there, or undef.
sub walk {
    my ($s, $tag, $to) = @_;
    my $a = $s->{at}{$tag};
    while ($a->{point} ne $to) {
        my $point = $a->{point};
        if ($point eq 'redirected' && $s->{mode} =~ /^(?:marked|front)$/) {
            if ($a->{gen} != $s->{gen} || $s->{own} ne $tag || !is_live($s)) {
                delete $s->{at}{$tag};
                return look($s);
            }
            $s->{rec} = 'executing';
        }
        elsif ($point eq 'before' && settles($s) && ($a->{gen} != $s->{gen} || $s->{rec} eq 'succeeded')) {
            # IDEM1: everything is rolled back
            @$a{qw(point says)} = ('after', 500);
        }
        elsif ($point eq 'committing') {
            $s->{eff}++;
            @$s{qw(rec ans)} = ('succeeded', $s->{mode} eq 'bare' ? '' : $a->{gen}) if settles($s);
        }
        $point = $a->{point};
        if ($point eq 'after' && !$a->{httpd}) {
            delete $s->{at}{$tag};
            return undef;
        }
        $a->{answer} = settle($s, $a) if $point eq 'answered';
        $a->{point} = $NEXT{$point};
    }
    return 'parked' if $to ne 'end';
    delete $s->{at}{$tag};
    return $a->{answer};
}

# An attempt begins, or is told why not.
sub begin {
    my ($s, $tag, $point, $says, $in) = @_;
    my $verdict = verdict($s);
    if ($verdict ne 'runs') {
        $s->{rec} = 'unknown' if $verdict eq 'outcome-unknown';
        return $verdict;
    }
    $s->{gen}++;
    $s->{rec} = settles($s) || $s->{mode} =~ /^(?:marked|front)$/ ? 'reserved' : 'executing';
    @$s{qw(own lease over ans empty)} = ($tag, 'live', 0, '', 0);
    $s->{at}{$tag} = { gen => $s->{gen}, point => 'redirected', in => $in, httpd => 1, says => $says };
    return walk($s, $tag, $point);
}

# Every child of an instance is killed: what it had in hand is gone, what the backends have in hand is not.
sub die_in {
    my ($s, $in) = @_;
    for my $tag (keys %{ $s->{at} }) {
        my $a = $s->{at}{$tag};
        next if $a->{in} ne $in || !$a->{httpd};
        $a->{httpd} = 0;
        $s->{lease} = 'dead' if $s->{own} eq $tag && $s->{lease} eq 'live';
        delete $s->{at}{$tag} unless $a->{point} =~ /^(?:before|committing|after)$/;
    }
    return;
}

# The events. Each gets a state of its own to change and returns the answer, or a list of [answer, state].
my %EVENT = (
    send => \&begin,
    # another request with this key
    other => sub { return 'key-reused' },
    go => sub { return walk(@_, 'end') },
    # its process is killed: who waits for it gets the proxy's 502
    backend => sub {
        my ($s, $tag) = @_;
        my $a = $s->{at}{$tag};
        delete $s->{at}{$tag} unless $a->{httpd};
        @$a{qw(point says)} = ('answered', 502);
        return $a->{httpd} ? walk($s, $tag, 'end') : undef;
    },
    kill => sub { die_in(@_); return undef },
    lapse => sub { my ($s) = @_; $s->{lease} = 'gone' if $s->{lease} eq 'dead'; return undef },
    overrun => sub { my ($s) = @_; $s->{over} = 1 if is_live($s); return undef },
    resolve => sub {
        my ($s) = @_;
        if ($s->{eff}) {
            @$s{qw(rec ans)} = qw(succeeded found);
        }
        else {
            @$s{qw(rec own lease)} = ('reserved', '', 'gone');
            $s->{gen}++;
        }
        return undef;
    },
    # several of the same at once: one may run, or write down that nobody knows; who meets that one's lock is told so
    burst => sub {
        my ($s, $tag, $in) = @_;
        my $verdict = verdict($s);
        my $marks = $verdict eq 'outcome-unknown' && is_live($s);
        my $answer = begin($s, $tag, 'end', 201, $in);
        return $marks ? 'outcome-unknown|in-progress' : $verdict ne 'runs' ? $answer : join '|', $answer, 'in-progress', $answer =~ /^ran (\d+)/ ? "replay $1" : ();
    },
    # the instance is killed while the request is anywhere
    race => sub {
        my ($s, $tag, $in) = @_;
        my @may;
        for my $point ('never', 'redirected', @WAY[ 1 .. $#WAY ]) {
            my $one = copy($s);
            my $answer = $point eq 'never' ? 'lost' : begin($one, $tag, $point, 201, $in);
            push @may, [ $answer, copy($one) ] if $answer ne 'parked' && $answer ne 'lost';
            die_in($_, $in) for $one, map { $_->[1] } @may;
            walk($one, $tag, 'end') if $one->{at}{$tag};
            push @may, [ 'lost', $one ];
        }
        return @may;
    },
    # what the backend's table says
    effects => sub { my ($s) = @_; return $s->{eff} },
);

# follow(states, [event, arguments]): what may be seen and what is then, [answer, state], no two alike.
sub follow {
    my ($states, $event) = @_;
    my ($name, @with) = @$event;
    my (@may, %seen);
    for my $state (@$states) {
        my $s = copy($state);
        my @got = $EVENT{$name}->($s, @with);
        push @may, grep { !$seen{ ($_->[0] // '') . ' ' . key_of($_->[1]) }++ } ref $got[0] ? @got : [ $got[0], $s ];
    }
    return @may;
}

1;
