# Published sequences of other people's payment systems, over the wire: GOV.UK Pay's contract tests, Mojaloop's duplicate
# transfers, replies of Stripe's API, and the header forms that public APIs ask for.
use strict;
use warnings;
use Idem::Test;
use JSON::PP;

my $json = JSON::PP->new->canonical;
sub vectors { return $json->decode(slurp("t/vectors/$_[0]")) }

my @apis = @{ vectors('api-header-forms/apis.json') };
my $number = 0;
my $t = Idem::Test->new(config => join '', protected('/v1', 'charges'), (map { protected("/$_", $_, 'IdempotencyFingerprint json') } qw(fxTransfers transfers)),
    map {
        my $api = $_;
        protected("/api$number", 'api' . $number++, "IdempotencyKeyHeader $api->{header}", 'IdempotencyKeyLength 1 ' . ($api->{max_length} // 255),
            ($api->{required} ? () : 'IdempotencyKey Optional'), ($api->{pattern} ? qq(IdempotencyKeyPattern "$api->{pattern}") : ()))
    } @apis);
my $c = $t->client;

subtest 'GOV.UK Pay: the same charge again' => sub {
    my ($interaction) = @{ vectors('govuk-pay-pacts/same-body-200.json')->{interactions} };
    my ($request, $response) = @$interaction{qw(request response)};
    my $body = $json->encode($request->{body});
    my @send = (headers => [ 'Idempotency-Key' => $request->{headers}{'Idempotency-Key'} ], body => $body, type => 'application/json');
    $t->backend->behave(body => $json->encode($response->{body}), type => 'application/json', status => $response->{status});
    my ($first, $second);
    ran($t, 1, 'both', sub { ($first, $second) = map { $c->post($request->{path}, @send) } 1 .. 2 });
    is($first->status, $response->{status}, 'status');
    is_deeply($json->decode($second->body), $response->{body}, 'the reply of the pact');
    is_replay($second, $first, 'again');
    $t->backend->behave;
};

# Every {$...} is some value; the same words stand for the same value, and what is taken from an earlier request is that.
my %value;
sub filled {
    my ($thing) = @_;
    return { map { $_ => filled($thing->{$_}) } keys %$thing } if ref $thing eq 'HASH';
    return [ map { filled($_) } @$thing ] if ref $thing eq 'ARRAY';
    return $thing if !defined $thing || ref $thing || $thing !~ /\{\$/;
    return $value{ $thing =~ s/\{\$prev\.[^.]+\.request\.body\./{\$own./r } //= "value-" . keys(%value);
}

for my $file ('duplicate_fx_transfers.json', 'original_transfer_at_committed.json') {
    for my $case (@{ vectors("mojaloop-duplicates/$file") }) {
        subtest "Mojaloop: $case->{case}" => sub {
            my @steps = grep { $_->{path} =~ m{^/(?:fxTransfers|transfers)$} } @{ $case->{steps} };
            my ($duplicate) = grep { $_->{do} =~ /duplicate/i } @steps;
            my ($original) = grep { $_->{path} eq $duplicate->{path} } @steps;
            my $sent = filled($original->{body});
            my $key = fresh_key();
            my $first = $c->post($original->{path}, key => $key, type => 'application/json', body => $json->encode($sent));
            is($first->status, 200, $original->{do});
            for my $step (grep { $_->{do} =~ /duplicate/i } @steps) {
                ran($t, 0, $step->{do}, sub {
                    if ($step->{do} =~ /modified/) {
                        my $body = { %$sent, expiration => 'another' };
                        problem($c->post($step->{path}, key => $key, type => 'application/json', body => $json->encode($body)), 'key-reused', operation => 1);
                    }
                    else {
                        # another order of members, and spaces: the same transfer
                        my $body = JSON::PP->new->pretty->sort_by(sub { $JSON::PP::b cmp $JSON::PP::a })->encode($sent);
                        is_replay($c->post($step->{path}, key => $key, type => 'application/json', body => $body), $first, $step->{do});
                    }
                });
            }
        };
    }
}

subtest 'replies of the Stripe API' => sub {
    my $fixtures = vectors('stripe-fixtures/resources.json');
    my ($wrong, $count) = (0, 0);
    for my $name (sort keys %$fixtures) {
        my $reply = $json->encode($fixtures->{$name});
        my $key = fresh_key();
        $t->backend->behave(body => $reply, type => 'application/json', header => 'Request-Id:req_1');
        my ($first, $second) = map { $c->post('/v1/charges', key => $key, body => "name=$name") } 1 .. 2;
        $count++;
        next if $first->body eq $reply && $second->body eq $reply && $second->replayed && !defined $second->header('Request-Id');
        diag("$name differs");
        $wrong++;
    }
    $t->backend->behave;
    cmp_ok($count, '>', 100, 'more than a hundred');
    is($wrong, 0, 'replayed octet for octet, without the first request\'s id');
};

for my $n (0 .. $#apis) {
    my $api = $apis[$n];
    subtest "keys as the $api->{api} has them" => sub {
        my ($first, $second);
        my @send = (headers => [ $api->{header} => 'a1B2-c3D4' ], body => '{}', type => 'application/json');
        ran($t, 1, 'a retry', sub { ($first, $second) = map { $c->post("/api$n", @send) } 1 .. 2 });
        is_replay($second, $first, "by $api->{header}");
        my $long = 'x' x (($api->{max_length} // 255) + 1);
        problem($c->post("/api$n", headers => [ $api->{header} => $long ], body => '{}'), 'key-malformed');
        my $bare = $c->post("/api$n", body => '{}');
        $api->{required} ? problem($bare, 'key-missing') : is($bare->status, 200, 'none is needed');
    };
}
$t->finish;
