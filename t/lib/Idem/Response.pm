package Idem::Response;

# status, reason, version, fields ([name, value] pairs as received), body, framing (length, chunked, close, none),
# complete (false where the server closed before the end it had announced).

use strict;
use warnings;
use JSON::PP ();

sub parse {
    my ($class, $head) = @_;
    my ($start, @lines) = split /\r\n/, $head;
    my ($version, $status, $reason) = $start =~ m{\AHTTP/(\d(?:\.\d)?) (\d{3}) ?(.*)\z} or die "not a status line: $start\n";
    my @fields = map { /\A([^:]+):[ \t]*(.*?)[ \t]*\z/s ? [ $1, $2 ] : die "not a field line: $_\n" } @lines;
    return bless { version => $version, status => $status + 0, reason => $reason, fields => \@fields }, $class;
}

sub reason { $_[0]{reason} }
sub status { $_[0]{status} }
sub body { $_[0]{body} }

# All values of a field, and the one value (lines joined), undef where there is none.
sub values { my ($self, $name) = @_; return map { $_->[1] } grep { lc $_->[0] eq lc $name } @{ $self->{fields} } }
sub header { my ($self, $name) = @_; my @all = $self->values($name); return @all ? join(', ', @all) : undef }

# The body as a JSON object; an empty one where it is none (is_json tells), so that a test fails and does not die.
sub json {
    my ($self) = @_;
    $self->{json} //= eval { JSON::PP->new->utf8->decode($self->{body}) };
    return ref $self->{json} eq 'HASH' ? $self->{json} : {};
}

sub is_json { my ($self) = @_; $self->json; return ref $self->{json} eq 'HASH' }

sub operation { $_[0]->header('Idempotency-Operation') }
sub replayed { ($_[0]->header('Idempotency-Replayed') // '') eq 'true' }

1;
